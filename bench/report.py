#!/usr/bin/env python3
"""Results of speed measurements as data, and the tables and charts of docs/performance.md and README.md.

    bench/report.py           rewrites the tables in both pages and the charts in docs/images
    bench/report.py --check   exits with 1 if a page or a chart differs from the data

bench/compare.py --out writes a result file; files worth keeping are in bench/results. One file is
one measurement: one machine, one build, all engines in turns. Its members:

    title      heading of the table
    machine    processor or device, and what of it was used
    date       day of the measurement, or of the commit that recorded it (YYYY-MM-DD)
    build      version of rullama
    model      model and type of its weights
    rounds     how often each engine ran each case; 1 or more
    commands   what was run, to its command; FILE stands for the model
    peers      list of {name, version}; may be empty
    results    list of cases:
      case     what was measured: pp512 is a prompt of 512 tokens, tg32 is 32 decoded tokens
      model    only where the cases differ in it; in place of the file's
      rounds   the same
      unit     "t/s" (tokens per second), "s", "ms", "us", or "perplexity", which gets no chart
      median   of rullama
      runs     single runs of rullama, optional
      peers    engine name to {median, runs}; runs are optional
      ratio    median of rullama divided by that of the best peer; absent without peers
      limit    {of, share} or {of, value}, optional: the nearest limit in words, and the share of it
               that rullama reached or its value in the unit of the case

Python 3.11 and its standard library.
"""
import argparse
import json
import re
import statistics
import sys
import textwrap
from pathlib import Path

from charts import Bar, Case, chart

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"

MAX_COLUMNS = 120  # of lines other than rows of tables, as tools/check-format.sh has it
LARGER_IS_BETTER = {"t/s": True, "s": False, "ms": False, "us": False, "perplexity": False}
UNITS_OF_SPEED = set(LARGER_IS_BETTER) - {"perplexity"}
BLOCK = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
# The chosen cases of a summary: <!-- cases: FILE CASE; FILE CASE -->
SUMMARY = re.compile(r"(<!-- cases: ([^>]+) -->\n).*?(<!-- end of cases -->)", re.DOTALL)


class ReportError(Exception):
    """A result file or page that is not as this file says. The text names the place."""


def require(condition, where, message):
    if not condition:
        raise ReportError(f"{where}: {message}")


def is_rate(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def check_keys(record, where, required, optional=()):
    require(isinstance(record, dict), where, f"found {type(record).__name__}, expected an object")
    missing = [key for key in required if key not in record]
    unknown = [key for key in record if key not in required and key not in optional]
    require(not missing, where, f"lacks {', '.join(missing)}")
    require(not unknown, where, f"has unknown members: {', '.join(unknown)}")


def check_sample(sample, where):
    """Checks a median and the runs it is the median of."""
    require(is_rate(sample["median"]), where, "median is not a positive number")
    runs = sample.get("runs")
    if runs is None:
        return
    are_rates = isinstance(runs, list) and runs and all(is_rate(run) for run in runs)
    require(are_rates, where, "runs is not a list of positive numbers")
    middle = statistics.median(runs)
    close = abs(middle - sample["median"]) <= 0.005 * sample["median"]
    require(close, where, f"median is {sample['median']}, that of its runs {middle}")


def best_peer(result):
    """The median of the fastest peer of a case; None without peers."""
    medians = [peer["median"] for peer in result["peers"].values()]
    choose = max if LARGER_IS_BETTER[result["unit"]] else min
    return choose(medians) if medians else None


def check_ratio(result, where):
    best = best_peer(result)
    require((best is not None) == ("ratio" in result), where, "a ratio goes with peers")
    if best is not None:
        expected = result["median"] / best
        # Ratios are rounded, and may have been taken before their medians were.
        close = abs(result["ratio"] - expected) <= 0.005 + 0.015 * expected
        require(close, where, f"ratio is {result['ratio']}, the medians give {expected:.3f}")


def check_limit(limit, where):
    check_keys(limit, where, ["of"], ["share", "value"])
    require(("share" in limit) != ("value" in limit), where, "expected either share or value")
    require(is_rate(limit.get("share", limit.get("value"))), where, "is not a positive number")


def check_result(result, names, where):
    optional = ["model", "rounds", "runs", "ratio", "limit"]
    check_keys(result, where, ["case", "unit", "median", "peers"], optional)
    where = f"{where} ({result['case']})"
    require(result["unit"] in LARGER_IS_BETTER, where, f"unknown unit '{result['unit']}'")
    check_sample(result, where)
    for name, sample in result["peers"].items():
        require(name in names, where, f"peer '{name}' is not in the file's list of peers")
        check_keys(sample, f"{where}, {name}", ["median"], ["runs"])
        check_sample(sample, f"{where}, {name}")
    check_ratio(result, where)
    if "limit" in result:
        check_limit(result["limit"], f"{where}, limit")


def check(report, where):
    """Raises ReportError unless `report` is what the head of this file says."""
    texts = ["title", "machine", "date", "build", "model"]
    check_keys(report, where, texts + ["rounds", "commands", "peers", "results"])
    for key in texts:
        require(isinstance(report[key], str) and report[key], where, f"{key} is not a text")
    require(re.fullmatch(r"\d{4}-\d\d-\d\d", report["date"]), where, "date is not YYYY-MM-DD")
    rounds = report["rounds"]
    require(isinstance(rounds, int) and rounds > 0, where, "rounds is not positive")
    require(report["commands"], where, "commands is empty")
    for peer in report["peers"]:
        check_keys(peer, f"{where}, peers", ["name", "version"])
    require(report["results"], where, "results is empty")
    names = [peer["name"] for peer in report["peers"]]
    for index, result in enumerate(report["results"]):
        check_result(result, names, f"{where}, result {index}")


def limit_text(result):
    limit = result.get("limit")
    if not limit:
        return ""
    share = limit.get("share")
    if share is None:
        share = result["median"] / limit["value"]
        share = share if LARGER_IS_BETTER[result["unit"]] else 1 / share
    return f"{100 * share:.0f} % of {limit['of']}"


def table(report):
    """The results of a checked report in Markdown, without a column that would be empty."""
    results = report["results"]
    same_unit = len({result["unit"] for result in results}) == 1

    def values(samples):
        for sample, result in zip(samples, results):
            unit = "" if same_unit else f" {result['unit']}"
            yield f"{sample['median']:,}{unit}" if sample else ""

    columns = []
    if any("model" in result for result in results):
        columns.append(("model", [result.get("model", report["model"]) for result in results]))
    columns.append(("case", [result["case"] for result in results]))
    if any("rounds" in result for result in results):
        columns.append(("rounds", [str(r.get("rounds", report["rounds"])) for r in results]))
    columns.append((f"rullama {results[0]['unit']}" if same_unit else "rullama", [*values(results)]))
    for peer in report["peers"]:
        name = peer["name"]
        columns.append((name, [*values([result["peers"].get(name) for result in results])]))
    columns.append(("ratio", [f"{r['ratio']:,}" if "ratio" in r else "" for r in results]))
    columns.append(("limit", [limit_text(result) for result in results]))
    columns = [(head, cells) for head, cells in columns if any(cells)]
    rows = [[head for head, _ in columns], ["---"] * len(columns)]
    rows += zip(*(cells for _, cells in columns))
    return "".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in row) + "\n" for row in rows
    )


def speed_bar(engine, median, unit, own):
    speed = median if LARGER_IS_BETTER[unit] else 1 / median
    return Bar(engine, f"{median:,} {unit}", speed, own)


def chart_case(result, engines, label):
    """A case of a chart: rullama and those of `engines` that ran it."""
    bars = [speed_bar("rullama", result["median"], result["unit"], own=True)]
    bars += [
        speed_bar(name, result["peers"][name]["median"], result["unit"], own=False)
        for name in engines
        if name in result["peers"]
    ]
    return Case(label, bars)


def has_bars(result):
    """Whether a case of a checked report is in its chart."""
    return bool(result["peers"]) and result["unit"] in UNITS_OF_SPEED


def has_chart(report):
    """Whether a peer ran any case of a checked report that is a speed."""
    return any(has_bars(result) for result in report["results"])


def report_chart(report):
    """The chart of the speeds of a checked report that a peer has too, of which there are some."""
    engines = [peer["name"] for peer in report["peers"]]
    cases = [
        chart_case(r, engines, " ".join(filter(None, [r.get("model"), r["case"]])))
        for r in report["results"]
        if has_bars(r)
    ]
    return chart(report["title"], cases)


def chart_name(name):
    return f"speed-{name}.svg"


def fill(text, indent=""):
    return textwrap.wrap(
        text,
        MAX_COLUMNS,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def render(name, report):
    """A checked report in Markdown: what was measured where, the chart, the table, the commands."""
    about = f"{report['machine']}. rullama {report['build']}, {report['date']}."
    if not any("model" in result for result in report["results"]):
        about = f"{report['model']}. {about}"
    if not any("rounds" in result for result in report["results"]):
        rounds = report["rounds"]
        about += " One round." if rounds == 1 else f" Medians of {rounds} rounds."
    if report["peers"]:
        peers = "; ".join(f"{peer['name']} ({peer['version']})" for peer in report["peers"])
        about += f" Peers: {peers}."
    lines = [f"**{report['title']}**", "", *fill(about), ""]
    if has_chart(report):
        lines += [f"![{report['title']}](images/{chart_name(name)})", ""]
    lines += [table(report), "```text"]
    for name, command in report["commands"].items():
        lines += fill(f"{name}: {command}", "    ")
    return "\n".join(lines + ["```"]) + "\n"


def dump(report):
    """The text of a result file, each case on a line of its own."""
    head = {key: value for key, value in report.items() if key != "results"}
    text = json.dumps(head, indent=2, ensure_ascii=False).removesuffix("\n}")
    cases = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in report["results"])
    return f'{text},\n  "results": [\n{cases}\n  ]\n}}\n'


def load(path):
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: {error}") from error
    check(report, path.name)
    return report


def update(page, reports):
    """The text of a page with the tables of `reports` (by file name) between their markers."""
    shown = set()

    def block(match):
        name = match.group(2)
        require(name in reports, "page", f"there is no bench/results/{name}.json")
        shown.add(name)
        return f"{match.group(1)}{render(name, reports[name])}{match.group(3)}"

    text = BLOCK.sub(block, page)
    missing = sorted(set(reports) - shown)
    require(not missing, "page", f"does not show {', '.join(missing)}")
    return text


def chosen_case(reports, choice):
    """The report, case and name of the fastest peer of one chosen case, "FILE CASE", of a summary."""
    name, _, case = choice.strip().partition(" ")
    require(name in reports, "summary", f"there is no bench/results/{name}.json")
    report = reports[name]
    found = [r for r in report["results"] if r["case"] == case]
    require(found, "summary", f"bench/results/{name}.json has no case '{case}'")
    result = found[0]
    best = best_peer(result)
    require(best is not None, "summary", f"{name} {case} has no peer")
    peer = next(peer for peer, sample in result["peers"].items() if sample["median"] == best)
    return report, result, peer


def summary_row(report, result, peer):
    """The cells of one case of a summary."""
    best = result["peers"][peer]["median"]
    rates = [f"{rate:,} {result['unit']}" for rate in (result["median"], best)]
    model = result.get("model", report["model"])
    case = result["case"]
    return [report["title"], model, case, rates[0], f"{rates[1]} ({peer})", f"{result['ratio']:,}"]


def summarise(page, reports):
    """The text of a page with the summaries it asks for between their markers."""

    def block(match):
        heads = ["where", "model", "case", "rullama", "best peer", "ratio"]
        rows = [heads, ["---"] * len(heads)]
        rows += [
            summary_row(*chosen_case(reports, choice)) for choice in match.group(2).split(";")
        ]
        text = "".join("| " + " | ".join(row) + " |\n" for row in rows)
        return f"{match.group(1)}{text}{match.group(3)}"

    text, count = SUMMARY.subn(block, page)
    require(count > 0, "summary", "the page has no '<!-- cases: ... -->'")
    return text


def summary_chart(page, reports):
    """The chart of the first summary of a page: each chosen case and its fastest peer."""
    match = SUMMARY.search(page)
    require(match is not None, "summary", "the page has no '<!-- cases: ... -->'")
    cases = []
    for choice in match.group(2).split(";"):
        report, result, peer = chosen_case(reports, choice)
        cases.append(chart_case(result, [peer], f"{report['title']}: {result['case']}"))
    return chart("rullama compared with the fastest other engine", cases)


def charts(readme, reports):
    """The texts of all charts, by file name."""
    made = {
        chart_name(name): report_chart(report)
        for name, report in reports.items()
        if has_chart(report)
    }
    made["speed.svg"] = summary_chart(readme, reports)
    return made


def is_same(path, text):
    return path.exists() and path.read_text(encoding="utf-8") == text


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of result files")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of the charts")
    options = parser.parse_args(arguments)
    try:
        reports = {path.stem: load(path) for path in sorted(options.results.glob("*.json"))}
        require(reports, options.results, "holds no result files")
        page, readme = (path.read_text(encoding="utf-8") for path in (options.page, options.readme))
        made = {options.page: update(page, reports), options.readme: summarise(readme, reports)}
        for name, text in charts(readme, reports).items():
            made[options.images / name] = text
        stale = [path for path, text in made.items() if not is_same(path, text)]
    except (ReportError, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    for path in stale:
        if options.check:
            print(f"{path} differs from the data; run bench/report.py", file=sys.stderr)
        else:
            path.write_text(made[path], encoding="utf-8")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
