#!/usr/bin/env python3
"""Tests bench/compare.py and bench/report.py with programs that answer with canned numbers."""
import contextlib
import copy
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare
import report

SVG = "{http://www.w3.org/2000/svg}"

# Each run is faster by 1 than the one before it, so that tests can tell runs apart.
RULLAMA = """#!/usr/bin/env python3
import json, pathlib, sys
count = pathlib.Path(__file__ + ".runs")
runs = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (runs + 1))
prompt = sys.argv[sys.argv.index("-p") + 1] != "0"
print(json.dumps({"median_per_s": (200.0 if prompt else 20.0) + runs, "bytes_per_token": 1e9,
                  "flops_per_token": 1e9, "version": "9.8.7", "commit": "abcdef0",
                  "device": "Some CPU"}))
"""
PEER = """#!/usr/bin/env python3
import json, sys
if "--help" in sys.argv:
    print("HELP")
elif "-gp" in sys.argv:
    print(json.dumps([{"avg_ts": 1.0}, {"avg_ts": 7.5, "build_commit": "old"}]))
else:
    prompt = sys.argv[sys.argv.index("-p") + 1] != "0"
    print(json.dumps([{"avg_ts": PROMPT if prompt else DECODE, "build_commit": "1234567"}]))
"""
KERNELS = """#!/usr/bin/env python3
import json
print(json.dumps({"benchmarks": [
    {"name": "PlainRead/x/threads:2", "bytes_per_second": 50e9},
    {"name": "Int8Peak/x/threads:2", "ops": 2e12}]}))
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def peer(self, name, prompt, decode, help_text="--n-depth"):
        text = PEER.replace("PROMPT", str(prompt)).replace("DECODE", str(decode))
        return f"{name}={self.program(name, text.replace('HELP', help_text))} -fa 1"

    def compare(self, *options):
        """The table that compare.py prints and the file that it writes."""
        out = self.folder / "result.json"
        rullama = self.program("rullama", RULLAMA)
        arguments = ["-m", "/models/e2b.gguf", "--rullama", rullama, "--out", str(out)]
        with contextlib.redirect_stdout(io.StringIO()) as table:
            with contextlib.redirect_stderr(io.StringIO()):
                compare.main(arguments + list(options))
        return table.getvalue(), report.load(out)

    def test_writes_medians_runs_ratios_and_limits(self):
        kernels = ["--kernels-bench", self.program("kernels", KERNELS)]
        peers = ["--peer", self.peer("fast", 100.0, 8.0), "--peer", self.peer("slow", 50.0, 10.0)]
        table, result = self.compare(*peers, *kernels, "-p", "512", "-n", "32", "--rounds", "3")
        prompt, decode = result["results"]
        # Runs 0, 2 and 4 of rullama are prompts, 1, 3 and 5 are decoding.
        self.assertEqual(prompt["runs"], [200.0, 202.0, 204.0])
        self.assertEqual(prompt["median"], 202.0)
        self.assertEqual(prompt["ratio"], 2.02)  # to fast, 100
        self.assertEqual(prompt["limit"], {"of": "50.0 GB/s", "share": 4.04})
        self.assertEqual(decode["median"], 23.0)
        self.assertEqual(decode["ratio"], 2.3)  # to slow, 10
        self.assertEqual(decode["peers"]["fast"], {"median": 8.0, "runs": [8.0, 8.0, 8.0]})
        self.assertEqual(result["build"], "9.8.7 abcdef0")
        self.assertEqual(result["machine"], "Some CPU, 2 threads")
        self.assertEqual(result["peers"][0], {"name": "fast", "version": "1234567"})
        self.assertEqual(result["rounds"], 3)
        self.assertIn("-m FILE", result["commands"]["fast"])
        self.assertNotIn("/models", json.dumps(result))
        self.assertEqual(
            table,
            "| case | rullama t/s | fast | slow | ratio | limit |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            "| pp512 | 202.0 | 100.0 | 50.0 | 2.02 | 404 % of 50.0 GB/s |\n"
            "| tg32 | 23.0 | 8.0 | 10.0 | 2.3 | 46 % of 50.0 GB/s |\n",
        )

    def test_takes_the_nearest_limit(self):
        arithmetic = {"of": "2.00 TOPS of int8", "share": 0.9}
        self.assertEqual(compare.nearest_limit(10.0, 1e9, 1.8e11, 40e9, 2e12), arithmetic)
        memory = {"of": "40.0 GB/s", "share": 0.25}
        self.assertEqual(compare.nearest_limit(10.0, 1e9, 1.8e11, 40e9, None), memory)
        self.assertIsNone(compare.nearest_limit(10.0, 1e9, 1e9, None, None))

    def test_asks_a_peer_without_depth_for_gp(self):
        old = self.peer("old", 100.0, 8.0, help_text="")
        _, result = self.compare("--peer", old, "-p", "0", "-d", "64", "--rounds", "1")
        self.assertEqual(result["results"][0]["case"], "tg32 after 64 tokens")
        self.assertEqual(result["results"][0]["peers"]["old"]["median"], 7.5)
        self.assertEqual(result["peers"][0]["version"], "old")

    def test_names_cases_with_all_rows(self):
        _, result = self.compare("--all-rows", "--rounds", "1")
        self.assertEqual([r["case"] for r in result["results"]], ["pp512, all rows", "tg32"])
        self.assertNotIn("ratio", result["results"][0])

    def test_ends_when_a_program_fails(self):
        bad = self.program("bad", "#!/bin/sh\necho broken >&2\nexit 3\n")
        with self.assertRaisesRegex(SystemExit, "failed with 3:\nbroken"):
            self.compare("--peer", f"bad={bad}", "--rounds", "1")


def example():
    """A result file with every member: two units, two models, a case without peers."""
    first = {"case": "pp512", "unit": "t/s", "median": 1200, "runs": [1100, 1200, 1300]}
    first |= {"peers": {"a": {"median": 600}}, "ratio": 2.0, "limit": {"of": "L", "value": 2400}}
    second = {"case": "start", "unit": "s", "median": 0.5, "peers": {"a": {"median": 2}}}
    second |= {"ratio": 0.25, "limit": {"of": "0.1 s", "value": 0.1}}
    third = {"case": "tg8", "unit": "t/s", "median": 7, "peers": {}, "model": "Y", "rounds": 1}
    head = {"title": "T", "machine": "M", "date": "2026-01-02", "build": "1", "model": "X"}
    head |= {"rounds": 3, "commands": {"rullama": "rullama bench"}}
    return head | {"peers": [{"name": "a", "version": "1"}], "results": [first, second, third]}


class ReportTest(unittest.TestCase):
    def assert_refused(self, message, change):
        changed = copy.deepcopy(example())
        change(changed, changed["results"][0])
        with self.assertRaisesRegex(report.ReportError, message):
            report.check(changed, "file")

    def test_refuses_what_is_not_a_result(self):
        report.check(example(), "file")
        self.assert_refused("lacks machine", lambda file, case: file.pop("machine"))
        self.assert_refused("unknown members: x", lambda file, case: file.update(x=1))
        self.assert_refused("date is not", lambda file, case: file.update(date="today"))
        self.assert_refused("rounds is not", lambda file, case: file.update(rounds=0))
        self.assert_refused("results is empty", lambda file, case: file.update(results=[]))
        self.assert_refused("unknown unit", lambda file, case: case.update(unit="x"))
        self.assert_refused("that of its runs 1100", lambda file, case: case.update(runs=[1100]))
        self.assert_refused("not a positive number", lambda file, case: case.update(median=0))
        self.assert_refused("the medians give 2.000", lambda file, case: case.update(ratio=2.1))
        self.assert_refused("goes with peers", lambda file, case: case.pop("ratio"))
        self.assert_refused("'b' is not", lambda file, case: case["peers"].update(b={"median": 1}))
        self.assert_refused("share or value", lambda file, case: case["limit"].update(share=1))

    def test_renders_cases_with_their_units_models_and_rounds(self):
        self.assertEqual(
            report.render("one", example()),
            "**T**\n\nM. rullama 1, 2026-01-02. Peers: a (1).\n\n"
            "![T](images/speed-one.svg)\n\n"
            "| model | case | rounds | rullama | a | ratio | limit |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n"
            "| X | pp512 | 3 | 1,200 t/s | 600 t/s | 2.0 | 50 % of L |\n"
            "| X | start | 3 | 0.5 s | 2 s | 0.25 | 20 % of 0.1 s |\n"
            "| Y | tg8 | 1 | 7 t/s | | | |\n"
            "\n```text\nrullama: rullama bench\n```\n",
        )

    def test_draws_longer_bars_for_what_is_faster(self):
        first, second = (
            report.chart_case(case, ["a"], case["case"]) for case in example()["results"][:2]
        )
        self.assertEqual([bar.value for bar in first.bars], ["1,200 t/s", "600 t/s"])
        self.assertEqual([bar.speed for bar in first.bars], [1200, 600])
        self.assertEqual([bar.speed for bar in second.bars], [2, 0.5])
        picture = ElementTree.fromstring(report.report_chart(example()))
        bars = [shape for shape in picture.iter(f"{SVG}rect") if shape.get("class") != "paper"]
        widths = [float(bar.get("width")) for bar in bars]
        self.assertEqual(len(widths), 4)  # the case without a peer is left out
        self.assertAlmostEqual(widths[1], widths[0] / 2)
        self.assertAlmostEqual(widths[3], widths[2] / 4, delta=0.1)

    def test_draws_no_bars_for_other_units(self):
        changed = example()
        for case in changed["results"][:2]:
            case["unit"] = "perplexity"
        changed["results"][0]["ratio"], changed["results"][0]["peers"]["a"]["median"] = 1.2, 1000
        report.check(changed, "file")
        self.assertFalse(report.has_chart(changed))
        self.assertIn("| X | pp512 | 3 | 1,200 perplexity |", report.table(changed))

    def test_charts_keep_names_as_text(self):
        hostile = example() | {"title": "<script>&\"'"}
        picture = ElementTree.fromstring(report.report_chart(hostile))
        self.assertEqual(picture.find(f"{SVG}title").text, hostile["title"])

    def test_reads_back_what_it_wrote(self):
        self.assertEqual(json.loads(report.dump(example())), example())

    def test_updates_a_page_between_its_markers(self):
        page = "a\n<!-- results: one -->\nold\n<!-- end of results -->\nb\n"
        new = report.update(page, {"one": example()})
        self.assertTrue(new.startswith("a\n<!-- results: one -->\n**T**"))
        self.assertTrue(new.endswith("```\n<!-- end of results -->\nb\n"))
        self.assertNotIn("old", new)
        self.assertEqual(report.update(new, {"one": example()}), new)
        with self.assertRaisesRegex(report.ReportError, "no bench/results/one.json"):
            report.update(page, {})
        with self.assertRaisesRegex(report.ReportError, "does not show two"):
            report.update(page, {"one": example(), "two": example()})

    def test_finds_a_page_that_differs_from_the_data(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            (Path(folder) / "one.json").write_text(report.dump(example()), encoding="utf-8")
            page.write_text("<!-- results: one -->\n<!-- end of results -->\n", encoding="utf-8")
            readme = Path(folder) / "readme.md"
            readme.write_text("<!-- cases: one pp512 -->\n<!-- end of cases -->\n", encoding="utf-8")
            options = ["--results", folder, "--page", str(page), "--readme", str(readme)]
            options += ["--images", folder]
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(report.main(options + ["--check"]), 1)
            self.assertIn("differs from the data", errors.getvalue())
            self.assertEqual(report.main(options), 0)
            self.assertEqual(report.main(options + ["--check"]), 0)
            readme.write_text("<!-- cases: one pp512 -->\nold\n<!-- end of cases -->\n", encoding="utf-8")
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(report.main(options + ["--check"]), 1)
            self.assertIn("readme.md differs from the data", errors.getvalue())
            self.assertEqual(report.main(options), 0)
            for name in ("speed-one.svg", "speed.svg"):
                (Path(folder) / name).write_text("<svg/>", encoding="utf-8")
                with contextlib.redirect_stderr(io.StringIO()) as errors:
                    self.assertEqual(report.main(options + ["--check"]), 1)
                self.assertIn(f"{name} differs from the data", errors.getvalue())
                self.assertEqual(report.main(options), 0)

    def test_refuses_a_summary_of_unknown_cases(self):
        for choice in ("two pp512", "one nothing"):
            page = f"<!-- cases: {choice} -->\n<!-- end of cases -->\n"
            with self.assertRaisesRegex(report.ReportError, "there is no|has no case"):
                report.summarise(page, {"one": example()})

    def test_the_page_of_the_tree_is_made_from_its_data(self):
        self.assertEqual(report.main(["--check"]), 0)


if __name__ == "__main__":
    unittest.main()
