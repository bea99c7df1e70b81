"""Which tests for a mutant: of Python, by the contexts of a run under coverage; of C++, by the table below.

Called by `__main__`.
"""

import collections
import re
from pathlib import Path
from xml.etree import ElementTree

from scripts.mutants.drawing import ROOT

MOST, FIRST = 300.0, 20.0  # seconds that tests took: of all that are chosen, and of those that are run first
_GENERAL = "known_answers worked_case engines_agree env_engines_agree extreme_states levers events simulator"
CPP_TESTS = {  # lines of C++ have no contexts: the tests that compare engines, those of the first fitting pattern first
    "tape/lobster": "lobster tapes",
    "tape/(flow|lives)": "flow_tapes",
    "tape/": "tapes lobster market_data",
    "(lane|warp)/added_agents": "added_agents_lanes added_agents_cuda",
    "warp/": "warp_on_host call_environments extreme_states added_agents_lanes",
    "lane/": "lane_environment task_values_agree extreme_states added_agents_lanes lane_races",
    "plan|compiled_in": "kernel_variants",
    "launcher|layout|operators": "layout operators vector_env saved_states eager_step",
    "series": "series given_series",
    "cpu/(orders|market)": "known_answers simulator_errors engines_agree worked_case",
    "agent|added_orders": "added_agents added_agents_reference added_agents_on_the_clock traders_examples",
    "levers": "levers known_answers second_model",
    "events|book|waiting|cpu/call": "known_answers events env_clock second_model trading clock_laws",
    "environment": "task_values_agree scenarios added_agents_everywhere env_engines_agree env_clock",
    "task|step": "task_values_agree env_engines_agree env_clock rewards roles",
}


class Covering:
    """The tests that cover a line of Python, and how long each takes."""

    def __init__(self, coverage: Path, durations: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(coverage))
        self.data.read()
        self.seconds: dict[str, float] = {}
        for case in ElementTree.parse(durations).iter("testcase"):
            if not len(case) or all(child.tag.startswith("system") for child in case):  # it passed
                name = case.attrib["classname"].replace(".", "/") + ".py::" + case.attrib["name"]
                self.seconds[name] = float(case.attrib["time"])

    def tests(self, mutant: dict) -> list[str]:
        """Return tests that cover a mutant's lines; of lines that only an import runs, those that cover the file."""
        by_line = self.data.contexts_by_lineno(str(ROOT / mutant["file"]))
        lines = range(mutant["at"], mutant["at"] + max(1, len(mutant["old"])))
        contexts = {context for line in lines for context in by_line.get(line, ())} - {""}
        if not contexts:
            contexts = {context for found in by_line.values() for context in found} - {""}
        names = {context.rpartition("|")[0] for context in contexts} & set(self.seconds)
        return self.in_rounds(names)

    def in_rounds(self, names: set[str]) -> list[str]:
        """Return the shortest test of each file, then the next two of each, the next four, and so on."""
        files = collections.defaultdict(list)
        for name in sorted(names, key=lambda name: (self.seconds[name], name)):
            files[name.partition("::")[0]].append(name)
        result, size, done = [], 1, 0
        while any(len(tests) > done for tests in files.values()):
            for tests in sorted(files.values(), key=lambda tests: self.seconds[tests[0]]):
                result += tests[done : done + size]
            done, size = done + size, 2 * size
        return result

    def parts(self, mutant: dict) -> list[list[str]]:
        """Return the tests to run first, few and of few files, as each file takes time to import, and then the rest."""
        tests, first, files, seconds = self.tests(mutant), [], set(), 0.0
        for name in tests:
            if len(files | {name.partition("::")[0]}) <= 10 and seconds + self.seconds[name] <= FIRST:
                first.append(name)
                files.add(name.partition("::")[0])
                seconds += self.seconds[name]
        rest, chosen = [], set(first)
        for name in tests:
            if name not in chosen and seconds + self.seconds[name] <= MOST:
                rest.append(name)
                seconds += self.seconds[name]
        return [part for part in (first, rest) if part] or mentioning(mutant)


def mentioning(mutant: dict) -> list[list[str]]:
    """Return files of tests that speak of what a mutant changes: for lines that run in other processes, or nowhere."""
    path = Path(mutant["file"])
    names = []  # of the class and of the functions that it is in, and of their file
    for text in (ROOT / path).read_text().splitlines()[: mutant["at"]]:
        if found := re.match(r"( *)(?:class|def) (\w+)|(\w+)(?:, (\w+))?(?:: .*)? = ", text):
            depth = len(found[1] or "") // 4
            names[depth:] = [name for name in found.groups()[1:] if name and not name.startswith("__")]
    words = {*map(re.escape, names), rf"{path.parts[-2]}\.{path.stem}", rf"import (\w+, )*{path.stem}"}
    scores = {}
    for file in sorted((ROOT / "tests").glob("test_*.py")):
        text, parts = file.read_text(), set(file.stem.split("_"))
        score = sum(3 for word in words if re.search(rf"\b{word}\b", text))
        score += 2 * len({*path.stem.split("_"), *(part for part in path.parts[1:-1])} & parts)
        scores[f"tests/{file.name}"] = score - len(text) / 1e5
    return [sorted(scores, key=lambda name: -scores[name])[:8]]


def cpp_parts(mutant: dict) -> list[list[str]]:
    """Return the files of tests for a mutant of C++."""
    fitting = next((tests for pattern, tests in CPP_TESTS.items() if re.search(pattern, mutant["file"])), "")
    names = list(dict.fromkeys([*fitting.split(), *_GENERAL.split()]))
    return [[f"tests/test_{name}.py" for name in names]]
