#!/usr/bin/env python3
"""Checks that each source and header includes, itself or through headers of this project, the header
of the C++ library that declares each std:: name it uses. The compiler cannot: its own headers include
one another, and others do so in the next version.

    tools/check-std-includes.py             prints each name without its header; exit status 1 if any
    tools/check-std-includes.py --headers   prints the #include lines of what tools/check-includes.sh
                                            may precompile: every header whose names are checked here
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Header: the names it declares. A name of several headers needs one of them. A name that stands in no
# row is an error: add it.
STANDARD = """
algorithm: adjacent_find all_of any_of binary_search clamp copy copy_n count count_if equal fill fill_n
  find find_if find_if_not for_each lower_bound max max_element min mismatch move nth_element
  partial_sort pop_heap push_heap ranges replace_if reverse search sort stable_sort transform unique
array: array begin end get size ssize to_array tuple_size
atomic: atomic memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release
bit: bit_cast bit_ceil bit_floor bit_width countr_zero endian has_single_bit popcount rotr
bitset: bitset
cctype: isalnum islower isprint isspace tolower toupper
cfenv: fesetround
charconv: chars_format errc from_chars from_chars_result to_chars
chrono: chrono
clocale: setlocale
cmath: abs ceil cos exp fabs floor fmax fmin ilogb isfinite isinf isnan ldexp llround log log10 log1p log2 lround
  nanf pow round sin sqrt tanh trunc
complex: abs complex
concepts: convertible_to floating_point integral signed_integral unsigned_integral
condition_variable: condition_variable condition_variable_any cv_status
csetjmp: jmp_buf longjmp
csignal: raise signal
cstddef: byte ptrdiff_t size_t to_integer
cstdint: int32_t int64_t uint32_t uint64_t uint8_t
cstdio: fclose fflush fprintf fputs puts rename setvbuf size_t snprintf sscanf
cstdlib: _Exit abort abs aligned_alloc atexit calloc exit free getenv strtod strtof strtoll strtoull
cstring: memchr memcmp memcpy memmove memset size_t strcmp strerror
ctime: time time_t
deque: begin deque end erase erase_if size ssize
exception: current_exception exception exception_ptr rethrow_exception set_terminate terminate
  uncaught_exceptions
filesystem: error_code filesystem
fstream: ifstream ios ofstream streamoff streamsize
functional: function greater less less_equal not_equal_to plus
future: async future future_status launch promise shared_future
initializer_list: initializer_list
iomanip: setprecision
ios: ios streamoff streamsize
iostream: cout flush
iterator: back_insert_iterator back_inserter begin distance end forward_iterator_tag istreambuf_iterator
  next prev size ssize
limits: numeric_limits
list: begin end list size
map: begin end erase_if less map multimap size ssize
memory: enable_shared_from_this make_shared make_unique make_unique_for_overwrite shared_ptr unique_ptr
  weak_ptr
mutex: call_once defer_lock lock_guard mutex once_flag scoped_lock unique_lock
new: align_val_t bad_alloc nothrow
numbers: numbers
numeric: accumulate gcd iota partial_sum reduce
optional: make_optional nullopt optional
ostream: flush
queue: priority_queue
random: bernoulli_distribution minstd_rand mt19937 mt19937_64 normal_distribution random_device uniform_int_distribution
  uniform_real_distribution
ranges: ranges
ratio: micro milli nano
set: begin end erase_if less multiset set size ssize
span: as_bytes as_writable_bytes begin end size span ssize
sstream: istringstream ostringstream stringstream
stdexcept: logic_error out_of_range runtime_error
stop_token: stop_callback stop_source stop_token
string: begin end erase erase_if getline size ssize stoi stoll string string_view_literals to_string
  u8string wstring
string_view: begin end size ssize string_view string_view_literals wstring_view
system_error: errc error_code generic_category system_error
thread: jthread stop_callback stop_source stop_token this_thread thread
tuple: get tie tuple tuple_size_v
type_traits: conditional_t integral_constant invoke_result_t is_arithmetic_v is_enum_v is_same_v is_trivially_copyable_v is_void_v remove_pointer_t remove_reference_t
unordered_map: erase_if unordered_map unordered_multimap
unordered_set: erase_if unordered_set
utility: cmp_equal cmp_greater cmp_greater_equal cmp_less cmp_less_equal cmp_not_equal declval exchange
  forward get in_place in_range move pair swap to_underlying
variant: get get_if holds_alternative variant visit
vector: begin end erase erase_if size ssize vector
"""

# Namespace of another library: the headers that declare it, as they are included.
FOREIGN = {
    "fmt": ("fmt/format.h", "fmt/ranges.h", "fmt/chrono.h"),
    "nlohmann": ("nlohmann/json.hpp", "nlohmann/json_fwd.hpp"),
    "spdlog": ("spdlog/spdlog.h", "spdlog/logger.h", "spdlog/sinks/stdout_sinks.h"),
    "tl": ("tl/expected.hpp",),
}


def headers_of_names():
    """{"vector": {"vector"}, "move": {"algorithm", "utility"}, ...}: std:: names and their headers."""
    headers = {}
    for row in re.findall(r"^(\w+):((?:.|\n  )*)", STANDARD, re.MULTILINE):
        for name in row[1].split():
            headers.setdefault(name, set()).add(row[0])
    return headers


class Sources:
    """The texts of the project's C++ files and what each includes."""

    def __init__(self):
        listed = subprocess.run(
            ["git", "ls-files", "*.cc", "*.h"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split()
        self.texts = {path: (ROOT / path).read_text() for path in listed}
        # Headers of the two interfaces are included by the path that they have when installed.
        self.installed = {
            path.split("include/", 1)[1]: path for path in listed if "include/rullama/" in path
        }
        self.closures = {}

    def find(self, included, path):
        """The project's file that is meant by an #include of `path`, or None."""
        beside = str(Path(path).parent / included)
        for candidate in (included, beside, self.installed.get(included)):
            if candidate in self.texts:
                return candidate
        return None

    def closure(self, path):
        """The foreign headers that the file includes itself or through the project's headers."""
        if path not in self.closures:
            foreign = self.closures[path] = set()
            for included in re.findall(r'^\s*#\s*include [<"]([^>"]+)', self.texts[path], re.MULTILINE):
                inner = self.find(included, path)
                if inner is None:
                    foreign.add(included)
                else:
                    foreign |= self.closure(inner)
        return self.closures[path]


def is_product(path):
    """Tests are left out: GoogleTest's headers include most of the library."""
    return not re.match(r"(tests|examples)/|.*_(test|test_util|fuzz)\.(cc|h)$|.*/frozen_", path)


def missing_headers(text, closure, headers):
    """Lines that say which name of the text lacks its header."""
    code = re.sub(r"//[^\n]*", "", text)
    for name in sorted(set(re.findall(r"\bstd::(\w+)", code))):
        if name not in headers:
            yield f"std::{name} is in no row of tools/check-std-includes.py: add it there"
        elif not headers[name] & closure:
            yield f"std::{name} needs <{'> or <'.join(sorted(headers[name]))}>"
    for namespace, declaring in FOREIGN.items():
        if re.search(rf"(?<![\w:]){namespace}::\w", code) and not closure.intersection(declaring):
            yield f"{namespace}:: needs <{'> or <'.join(declaring)}>"


def main():
    if sys.argv[1:] == ["--headers"]:
        standard = re.findall(r"^(\w+):", STANDARD, re.MULTILINE)
        foreign = [declaring[0] for declaring in FOREIGN.values()]
        print("\n".join(f"#include <{header}>" for header in standard + foreign))
        return 0
    if sys.argv[1:]:
        print("usage: tools/check-std-includes.py [--headers]", file=sys.stderr)
        return 2
    sources = Sources()
    headers = headers_of_names()
    found = 0
    for path in filter(is_product, sources.texts):
        for line in missing_headers(sources.texts[path], sources.closure(path), headers):
            print(f"{path}: {line}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
