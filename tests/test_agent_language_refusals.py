"""What is not in the language of traders is refused, with its place and what to write instead."""

# ruff: noqa: E501 (a case per line)

import itertools
import linecache
import types

import pytest

from kineticsim_env.agents.expressions import MOST_TURNS
from kineticsim_env.agents.language import ProgramError, Vocabulary, read
from tests.agent_programs import VOCABULARY, order

_COUNT = itertools.count()
SURROUNDINGS = {
    "ks": types.SimpleNamespace(),
    "LEVELS": [1, 2],
    "TEXT": "text",
    "TENTH": 0.1,
    "MUCH": 2.5,
    "ONE": 1,
    "BIG": 2**31,
    "HUGE": 10**5000,
    "wide": 65537,
}


def surroundings():
    names = dict(SURROUNDINGS)
    names["ks"] = types.ModuleType("ks")
    names["ks"].ONE = 1
    names["ks"].order, names["ks"].no_order = VOCABULARY.order, VOCABULARY.no_order
    return names


def defined(text, folder, name="trader"):
    """Return a function of a file with such a text."""
    path, names = folder / f"traders_{next(_COUNT)}.py", surroundings()
    path.write_text(text, encoding="utf-8")
    exec(compile(text, str(path), "exec"), names)
    return names[name]


def refusal(function):
    with pytest.raises(ProgramError) as caught:
        read(function, VOCABULARY)
    return caught.value


# Lines after `x = own.a`, which is line 2; what is said of line 3, or of the line that is given.
CANNOT = "which traders cannot do"
LINES = {
    "while": ("while x:\n        x -= 1", f"got 'while x:', {CANNOT}; write for i in range(n) with a constant n, and an if within it"),
    "a float": ("x = 0.5", "expected whole numbers, got '0.5'"),
    "a float's name": ("x = TENTH", "expected local names and constants, got 'TENTH', which is no whole number"),
    "a text": ("x = 'a'", "expected whole numbers, got \"'a'\""),
    "a text's name": ("x = TEXT", "expected local names and constants, got 'TEXT', which is no whole number"),
    "an f-string": ("x = f'{x}'", f"got \"f'{{x}}'\", {CANNOT}; there are no texts"),
    "bytes": ("x = b'a'", "expected whole numbers, got \"b'a'\""),
    "a complex number": ("x = 1j", "expected whole numbers, got '1j'"),
    "dots": ("x = ...", "expected whole numbers, got '...'"),
    "None": ("x = None", "expected whole numbers, got 'None'"),
    "a list": ("x = [1, 2]", f"got '[1, 2]', {CANNOT}; use several names"),
    "a tuple": ("x = 1, 2", f"got '1, 2', {CANNOT}; use several names"),
    "a dict": ("x = {1: 2}", f"got '{{1: 2}}', {CANNOT}; use several names"),
    "a set": ("x = {1}", f"got '{{1}}', {CANNOT}; use several names"),
    "an element": ("x = LEVELS[0]", f"got 'LEVELS[0]', {CANNOT}; use several names"),
    "a comprehension": ("x = sum([i for i in range(3)])", "expected calls of min, max, abs and functions of whole numbers, got 'sum'"),
    "a comprehension alone": ("x = [i for i in range(3)]", f"got '[i for i in range(3)]', {CANNOT}; write a for loop"),
    "a generator": ("x = max(0, (i for i in range(3)))", f"got '(i for i in range(3))', {CANNOT}; write a for loop"),
    "an unknown name": ("x = nowhere", "expected local names and constants, got 'nowhere', which is no whole number"),
    "an unknown function": ("x = nowhere(1)", "expected calls of min, max, abs and functions of whole numbers, got 'nowhere'"),
    "what a market has not": ("x = market.mid", "reads 'mid', which a market does not have; it has mid2, ret"),
    "what own has not": ("x = own.average", "reads 'average', which this trader does not have; it has a, b, m0, m1"),
    "what draw has not": ("x = draw.normal()", "reads 'normal', which a draw does not have; it has below, chance, coin"),
    "a draw without a call": ("x = draw.coin", "got 'draw.coin' without a call; write draw.coin(...)"),
    "a price without a call": ("x = market.near_mid", "got 'market.near_mid' without a call; write market.near_mid(...)"),
    "a number with a call": ("x = market.mid2()", "calls 'market.mid2', which is a number; write it without ()"),
    "a number of own with a call": ("x = own.a()", "expected calls of min, max, abs and functions of whole numbers, got 'own.a'"),
    "a local name with a call": ("x = x(1)", "calls 'x', which is a number"),
    "a local name's attribute": ("x = x.real", "reads 'x.real', but 'x' is a number; pass what it needs"),
    "a dotted dot": ("x = market.mid2.real", f"got 'market.mid2.real', {CANNOT}"),
    "the market as a number": ("x = market + 1", "uses 'market' as a number; it has attributes"),
    "another name for it": ("m = market", "uses 'market' as a number; it has attributes"),
    "a parameter written": ("own.a = 3", "writes the parameter 'a'; what changes is memory: declare it as such"),
    "a parameter counted": ("own.a += 3", "writes the parameter 'a'; what changes is memory: declare it as such"),
    "the market written": ("market.mid2 = 3", "expected assignments to local names, and memory of 'own', got one to 'market.mid2'"),
    "new memory": ("own.fresh = 3", "reads 'fresh', which this trader does not have; it has a, b, m0, m1"),
    "an argument written": ("market = 3", "expected another name, got an assignment to 'market'"),
    "an argument counted": ("own += 3", "expected another name, got an assignment to 'own'"),
    "an argument in a loop": ("for draw in range(3): pass", "expected another name, got an assignment to 'draw'"),
    "an element written": ("LEVELS[0] = 3", "expected assignments to local names, and memory of 'own', got one to 'LEVELS[0]'"),
    "two names": ("x, y = 1, 2", "assigns several names; assign one per line"),
    "twice": ("x = y = 2", "assigns several names; assign one per line"),
    "a starred name": ("[*x] = 1, 2", "assigns several names; assign one per line"),
    "a type": ("x: int = 3", f"got 'x: int = 3', {CANNOT}; leave the annotation: all numbers are int32"),
    "a loop over a list": ("for i in LEVELS: pass", "loops over something else than range of constants; write for i in range(8)"),
    "a loop's bound": ("for i in range(x): pass", "loops over something else than range of constants; write for i in range(8)"),
    "a loop's bound of own": ("for i in range(own.a): pass", "loops over something else than range of constants; write for i in range(8)"),
    "a loop by 0": ("for i in range(1, 9, 0): pass", "loops over something else than range of constants; write for i in range(8)"),
    "a loop over nothing": ("for i in range(): pass", "loops over something else than range of constants; write for i in range(8)"),
    "a loop of two names": ("for i, j in range(3): pass", "expected for NAME in range(n) without else, got another loop"),
    "a loop with else": ("for i in range(3): pass\n    else: x = 1", "expected for NAME in range(n) without else, got another loop"),
    "a loop's local range": ("range = 3\n    for i in range(3): pass", (4, "loops over something else than range of constants; write for i in range(8)")),
    "many turns": ("for i in range(wide): pass", "expected at most 65536 turns of loops and calls, got 65537 by here"),
    "many turns within each other": ("for i in range(300):\n        for j in range(300): pass", (4, "expected at most 65536 turns of loops and calls, got 90300 by here")),
    "a loop's wide bound": ("for i in range(2**31): pass", "loops over something else than range of constants; write for i in range(8)"),
    "a loop's big bound": ("for i in range(BIG, 2147483647): pass", "expected -2147483648 to 2147483647 (32 bits), got the number 2147483648"),
    "break": ("for i in range(3):\n        break", (4, f"got 'break', {CANNOT}; use an if instead")),
    "continue": ("for i in range(3): continue", f"got 'continue', {CANNOT}; use an if instead"),
    "/": ("x = x / 2", f"got 'x / 2', {CANNOT}; // divides and rounds down"),
    "/=": ("x /= 2", f"got 'x /= 2', {CANNOT}; // divides and rounds down"),
    "**": ("x = x**2", f"got 'x**2', {CANNOT}; write a product, or 1 << n for a power of two"),
    "@": ("x = x @ x", f"got 'x @ x', {CANNOT}; there are no matrices"),
    "~": ("x = ~x", f"got '~x', {CANNOT}; write -x - 1"),
    "is": ("x = x is market.ret", f"got 'x is market.ret', {CANNOT}; write =="),
    "is not": ("x = x is not market.ret", f"got 'x is not market.ret', {CANNOT}; write !="),
    "in": ("x = x in LEVELS", f"got 'x in LEVELS', {CANNOT}; compare with each value, joined by or"),
    "in a tuple": ("x = x not in (1, 2)", f"got 'x not in (1, 2)', {CANNOT}; compare with each value, joined by and"),
    "lambda": ("f = lambda: 3", f"got 'lambda: 3', {CANNOT}; define a function before, beside this one"),
    "a walrus": ("y = (x := 3)", f"got 'x := 3', {CANNOT}; assign in a line of its own"),
    "a function": ("def f(): return 1", f"got 'def f(): return 1', {CANNOT}; define it before, beside this one"),
    "a class": ("class C: pass", f"got 'class C: pass', {CANNOT}; define functions of whole numbers"),
    "try": ("try: x = 1\n    except: x = 2", f"got 'try: x = 1', {CANNOT}; nothing raises here"),
    "raise": ("raise ValueError", f"got 'raise ValueError', {CANNOT}; return ks.no_order() instead"),
    "assert": ("assert x", f"got 'assert x', {CANNOT}; nothing can be raised here"),
    "global": ("global y", f"got 'global y', {CANNOT}; memory is what own has"),
    "del": ("del x", f"got 'del x', {CANNOT}; leave the name"),
    "with": ("with x: pass", f"got 'with x: pass', {CANNOT}; there is nothing to open"),
    "import": ("import math", f"got 'import math', {CANNOT}; import it before the function"),
    "match": ("match x:\n        case 1: pass", f"got 'match x:', {CANNOT}; write if and elif"),
    "yield": ("yield x", f"got 'yield x', {CANNOT}; return instead"),
    "print": ("print(x)", "got 'print(x)', which has no effect; assign it, or remove it"),
    "a value alone": ("x + 1", "got 'x + 1', which has no effect; assign it, or remove it"),
    "a lost order": ("ks.order(1, x, 1)", "got 'ks.order(1, x, 1)', which has no effect; assign it, or remove it"),
    "an order kept": ("y = ks.order(1, x, 1)", "makes an order that is not returned; write return ks.order(...)"),
    "a number returned": ("return x + 1", "returns 'x + 1'; return ks.order(...) or ks.no_order()"),
    "0 returned": ("return 0", "returns '0'; return ks.order(...) or ks.no_order()"),
    "a number of two": ("return ks.order(1, x, 1) if x else 0", "returns '0'; return ks.order(...) or ks.no_order()"),
    "a short order": ("return ks.order(1, x)", "got an order without side, tick and quantity; write ks.order(side, tick, quantity)"),
    "a long order": ("return ks.order(1, x, 1, 0, 5)", "expected side, tick, quantity, marketable, got 5 numbers in an order"),
    "an order's word": ("return ks.order(1, x, 1, price=3)", "expected side, tick, quantity, marketable, each once, got 'price' in an order"),
    "an order's word twice": ("return ks.order(1, x, 1, side=3)", "expected side, tick, quantity, marketable, each once, got 'side' in an order"),
    "an order of a dict": ("return ks.order(**x)", "expected side, tick, quantity, marketable, each once, got '**' in an order"),
    "an order of a list": ("return ks.order(*x)", "got an order without side, tick and quantity; write ks.order(side, tick, quantity)"),
    "no order of numbers": ("return ks.no_order(1)", "got numbers for no order"),
    "a local no_order": ("order = 3\n    return order(1, x, 1)", (4, "returns 'order(1, x, 1)'; return ks.order(...) or ks.no_order()")),
    "* in a call": ("x = max(*x)", "expected plain arguments, got * or ** in a call"),
    "** in a call": ("x = max(1, **x)", "expected plain arguments, got * or ** in a call"),
    "a word in a call": ("x = min(x, 2, key=abs)", "expected numbers alone, got key= in 'min(x, 2, key=abs)'"),
    "min of one": ("x = min(x)", "expected two whole numbers or more, got 'min(x)'"),
    "abs of two": ("x = abs(x, 1)", "expected 1 whole number, got 2 in 'abs(x, 1)'"),
    "too few": ("x = market.near_mid()", "expected 1 whole number, got 0 in 'market.near_mid()'"),
    "a draw of too many": ("x = draw.coin(3)", "expected 0 whole numbers, got 1 in 'draw.coin(3)'"),
    "a draw's other word": ("x = draw.coin(seed=3)", "expected word= a constant from 0 to 255, got 'draw.coin(seed=3)'"),
    "a draw's word that varies": ("x = draw.coin(word=x)", "expected word= a constant from 0 to 255, got 'draw.coin(word=x)'"),
    "a draw's far word": ("x = draw.coin(word=256)", "expected word= a constant from 0 to 255, got 'draw.coin(word=256)'"),
    "a draw's word before 0": ("x = draw.coin(word=-1)", "expected word= a constant from 0 to 255, got 'draw.coin(word=-1)'"),
    "a probability over 1": ("x = draw.chance(1.5)", "expected 0.0 to 1.0, got the probability 1.5"),
    "a probability below 0": ("x = draw.chance(-0.5)", "expected 0.0 to 1.0, got the probability -0.5"),
    "an infinite probability": ("x = draw.chance(1e999)", "expected 0.0 to 1.0, got the probability inf"),
    "a probability's name": ("x = draw.chance(MUCH)", "expected 0.0 to 1.0, got the probability 2.5"),
    "the probability ONE": ("x = draw.chance(ONE)", "got the probability 1, which stands for 2^-24; write 1.0 for always"),
    "the probability of a module": ("x = draw.chance(ks.ONE, word=2)", "got the probability 1, which stands for 2^-24; write 1.0 for always"),
    "the probability +1": ("x = draw.chance(+1)", "got the probability 1, which stands for 2^-24; write 1.0 for always"),
    "the probability 1": ("x = draw.chance(1)", "got the probability 1, which stands for 2^-24; write 1.0 for always"),
    "a probability computed": ("x = draw.chance(0.5 * x)", "expected whole numbers, got '0.5'"),
    "33 bits": ("x = 2147483648", "expected -2147483648 to 2147483647 (32 bits), got the number 2147483648"),
    "33 bits below 0": ("x = -2147483649", "expected -2147483648 to 2147483647 (32 bits), got the number -2147483649"),
    "33 bits of a name": ("x = BIG", "expected -2147483648 to 2147483647 (32 bits), got the number 2147483648"),
    "16,610 bits": ("x = HUGE", "expected -2147483648 to 2147483647 (32 bits), got the number one of 16610 bits"),
    "a branch without a value": ("if x: y = 1\n    x = y", (4, "reads 'y', which may have no value here; give it one before")),
    "a loop without a turn": ("for i in range(0): y = 1\n    x = y", (4, "reads 'y', which may have no value here; give it one before")),
    "its own value": ("y = y + 1", "reads 'y', which may have no value here; give it one before"),
    "its own value counted": ("y += 1", "reads 'y', which may have no value here; give it one before"),
    "a deep expression": (f"x = {'-x' + ' + x' * 150}", "is more than 80 parts within each other; give some of them a name before"),
    "brackets": (f"x = {'-(' * 120}x{')' * 120}", "is more than 80 parts within each other; give some of them a name before"),
    "a long minimum": (f"x = min({'x, ' * 150})", "is more than 80 parts within each other; give some of them a name before"),
    "a long quote": (f"x = {'+'.join(['x'] * 50)} + [1] / 2", f"got '[1]', {CANNOT}; use several names"),
    "a long line": (f"x = [{'1, ' * 50}]", f"got '[{'1, ' * 19}1,...', {CANNOT}; use several names"),
    "two lines": ("x = [\n        1]", f"got '[...', {CANNOT}; use several names"),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_a_line_that_is_wrong(case, tmp_path):
    line, said = LINES[case]
    number, said = said if isinstance(said, tuple) else (3, said)
    text = f"def trader(market, own, draw):\n    x = own.a\n    {line}\n    return ks.order(1, x, 1)\n"
    error = refusal(defined(text, tmp_path))
    assert (error.msg, error.lineno) == (f"trader: {said}", number)
    assert error.filename.endswith(".py") and error.text == text.splitlines()[number - 1]
    assert str(error).endswith(f"(traders_{next(_COUNT) - 1}.py, line {number})")


TRADER = "def trader(market, own, draw):\n    return ks.order(1, helper(own.a), 1)\n"
WHOLE = {
    "two arguments": ("def trader(market, own):\n    pass\n", 1, "trader: expected three arguments, market, own, draw, got 2"),
    "a default": ("def trader(market, own, draw=3):\n    pass\n", 1, "trader: expected plain names, got *, ** or a default among the arguments"),
    "* arguments": ("def trader(*market):\n    pass\n", 1, "trader: expected plain names, got *, ** or a default among the arguments"),
    "recursion": ("def helper(x):\n    return helper(x)\n" + TRADER, 2, "helper: calls 'helper', which calls itself; write a for loop"),
    "recursion of two": ("def helper(x):\n    return other(x)\ndef other(x):\n    return helper(x)\n" + TRADER, 4, "other: calls 'helper', which calls itself; write a for loop"),
    "the trader itself": ("def trader(market, own, draw):\n    return ks.order(1, trader(1, 2, 3), 1)\n", 2, "trader: calls 'trader', which calls itself; write a for loop"),
    "a helper without a value": ("def helper(x):\n    if x: return 1\n" + TRADER, 1, "helper: may end without a value; return a number at its end"),
    "a helper's loop": ("def helper(x):\n    for i in range(3): return 1\n" + TRADER, 1, "helper: may end without a value; return a number at its end"),
    "a helper of a docstring": ("def helper(x):\n    '''Nothing.'''\n" + TRADER, 1, "helper: may end without a value; return a number at its end"),
    "a helper that returns": ("def helper(x):\n    return\n" + TRADER, 2, "helper: returns nothing; return a number"),
    "a helper that orders": ("def helper(x):\n    return ks.order(1, x, 1)\n" + TRADER, 2, "helper: makes an order that is not returned; write return ks.order(...)"),
    "a helper's default": ("def helper(x, y=1):\n    return x\n" + TRADER, 1, "helper: expected plain names, got *, ** or a default among the arguments"),
    "a helper's arguments": ("def helper(x, y):\n    return x\n" + TRADER, 4, "trader: expected 2 whole numbers, got 1 in 'helper(own.a)'"),
    "a helper's market": ("def helper(x):\n    return x.mid2\n" + TRADER, 2, "helper: reads 'x.mid2', but 'x' is a number; pass what it needs"),
    "a helper writes": ("def helper(x):\n    x.mid2 = 3\n    return 1\n" + TRADER, 2, "helper: expected assignments to local names, got one to 'x.mid2'"),
    "a helper of async": ("async def helper(x):\n    return x\n" + TRADER, 4, "trader: calls 'helper', which cannot be read (agent: expected a plain function (def), got 'helper'); define it with def in a file"),
    "a lambda helper": ("helper = lambda x: x\n" + TRADER, 3, "trader: calls 'helper', which cannot be read (agent: expected a plain function (def), got '<lambda>'); define it with def in a file"),
    "a cached helper": ("import functools\n@functools.cache\ndef helper(x):\n    return x\n" + TRADER, 6, "trader: expected calls of min, max, abs and functions of whole numbers, got 'helper'"),
    "a wrapped helper": ("import functools\ndef twice(f):\n    @functools.wraps(f)\n    def wrapper(*args):\n        return 2 * f(*args)\n    return wrapper\n@twice\ndef helper(x):\n    return x\n" + TRADER, 4, "wrapper: expected plain names, got *, ** or a default among the arguments"),
    "a class as a helper": ("class helper: pass\n" + TRADER, 3, "trader: expected calls of min, max, abs and functions of whole numbers, got 'helper'"),
    "shadowed min": ("min = 3\ndef trader(market, own, draw):\n    return ks.order(1, min(1, 2), 1)\n", 3, "trader: expected calls of min, max, abs and functions of whole numbers, got 'min'"),
    "shadowed range": ("range = abs\ndef trader(market, own, draw):\n    for i in range(3): pass\n", 3, "trader: loops over something else than range of constants; write for i in range(8)"),
    "turns of calls": ("def helper(x):\n    for i in range(300): x += i\n    return x\ndef trader(market, own, draw):\n    x = 1\n    for i in range(300):\n        x = helper(x)\n    return ks.order(1, x, 1)\n", 7, "trader: expected at most 65536 turns of loops and calls, got 90600 by here"),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLE)
def test_a_program_that_is_wrong(case, tmp_path):
    text, number, said = WHOLE[case]
    error = refusal(defined(text, tmp_path))
    assert (error.msg, error.lineno) == (said, number)
    assert error.text == text.splitlines()[number - 1]


def test_the_place_is_a_column_of_the_users_own_line(tmp_path):
    text = (
        "if True:\n\n    # größer\n    @(lambda f: f)\n    def trader(market, own, draw):\n        größe = own.a ** 2\n"
    )
    error = refusal(defined(text, tmp_path))
    assert (error.lineno, error.text) == (6, "        größe = own.a ** 2")
    assert error.text[error.offset - 1 :].startswith("own.a ** 2")


def test_calls_that_double_are_refused_before_they_are_many(tmp_path):
    text = "def f0(x):\n    return x + 1\n"
    text += "".join(f"def f{n}(x):\n    return f{n - 1}(x) + f{n - 1}(x)\n" for n in range(1, 20))
    text += "def trader(market, own, draw):\n    return ks.order(1, f19(own.a), 1)\n"
    error = refusal(defined(text, tmp_path))
    said = "expected at most 20000 characters of C++, with the functions that it calls in their places, got "
    assert said in error.msg and error.msg.endswith(": use loops")


def test_a_long_program_is_refused(tmp_path):
    text = "def trader(market, own, draw):\n" + "    own.m0 = own.m0 * 3 + market.mid2\n" * 2000
    assert "characters of C++" in refusal(defined(text, tmp_path)).msg


def test_turns_up_to_the_limit_are_allowed(tmp_path):
    text = f"def trader(market, own, draw):\n    for i in range({MOST_TURNS}): own.m0 += i\n"
    assert f"< {MOST_TURNS};" in read(defined(text, tmp_path), VOCABULARY).text


@pytest.mark.parametrize("sign", [" + x", " if x else x", " and (x", " == (x"])
def test_what_python_itself_hardly_compiles_is_refused(sign, tmp_path):
    brackets = ")" * 70 if "(" in sign else ""
    count = 70 if brackets else 900
    text = f"def trader(market, own, draw):\n    x = own.a\n    x = x{sign * count}{brackets}\n"
    if brackets:
        read(defined(text, tmp_path), VOCABULARY)  # within 80
    else:
        assert refusal(defined(text, tmp_path)).lineno == 3


def test_a_chain_of_comparisons_does_not_double_its_text(tmp_path):
    chain = "x"
    for _ in range(40):
        chain = f"(x < {chain} < 3)"
    text = f"def trader(market, own, draw):\n    x = own.a\n    return ks.order(1, {chain}, 1)\n"
    assert len(read(defined(text, tmp_path), VOCABULARY).text) < 5000


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (3, "agent: expected a plain Python function (def), got 3"),
        (order, None),
        (lambda market, own, draw: None, "agent: expected a plain function (def), got '<lambda>'"),
        (print, "agent: expected a plain Python function (def), got <built-in function print>"),
    ],
)
def test_what_is_no_function(thing, said):
    with pytest.raises((TypeError, ProgramError)) as caught:
        read(thing, VOCABULARY)
    assert said is None or str(caught.value) == said


def test_async_is_no_trader(tmp_path):
    with pytest.raises(TypeError, match=r"^agent: expected a plain function \(def\), got 'trader'$"):
        read(defined("async def trader(market, own, draw):\n    pass\n", tmp_path), VOCABULARY)


def test_a_function_without_a_source():
    names = surroundings()
    exec("def trader(market, own, draw):\n    pass\n", names)
    with pytest.raises(TypeError, match="source of trader cannot be read; define it with def in a file or a notebook"):
        read(names["trader"], VOCABULARY)


def test_a_source_that_has_changed(tmp_path):
    text = "def trader(market, own, draw):\n    return ks.order(1, own.a + 1, 1)\n"
    trader = defined(text, tmp_path)
    path = trader.__code__.co_filename
    for other in (text.replace("+ 1", "- 1"), text.replace("+ 1", "+ 2"), text.replace("own.a", "own.b")):
        with open(path, "w") as file:
            file.write(other)
        linecache.clearcache()
        with pytest.raises(TypeError, match="source of trader is not what Python has compiled; import it again"):
            read(trader, VOCABULARY)
    with open(path, "w") as file:
        file.write("# a comment\n")
    linecache.clearcache()
    with pytest.raises(TypeError, match="source of trader"):
        read(trader, VOCABULARY)


@pytest.mark.parametrize(
    "before, after",
    [
        ("    if own.a > 2:\n        x += 1\n    x += 2\n", "    if own.a > 2:\n        x += 1\n        x += 2\n"),
        ("    for i in range(3):\n        x += i\n    x += 2\n", "    for i in range(3):\n        x += i\n        x += 2\n"),
        ("    if own.a > 2:\n        x += 1\n    elif own.b:\n        x += 2\n", "    if own.a > 2:\n        x += 1\n        if own.b:\n            x += 2\n"),
        ("    x = 1 if own.a and own.b else 2\n", "    x = 1 if own.a or own.b else 2\n"),
    ],
    ids=["if", "for", "elif", "and"],
)  # fmt: skip
def test_a_source_whose_indentation_has_changed(before, after, tmp_path):
    """Its instructions are the same; where they jump to is another place."""
    text = "def trader(market, own, draw):\n    x = 0\n{}    return ks.order(1, x, 1)\n"
    trader = defined(text.format(before), tmp_path)
    assert read(trader, VOCABULARY).text
    with open(trader.__code__.co_filename, "w") as file:
        file.write(text.format(after))
    linecache.clearcache()
    with pytest.raises(TypeError, match="source of trader is not what Python has compiled; import it again"):
        read(trader, VOCABULARY)


@pytest.mark.parametrize("name", ["", "A", "größe", "a__b", "_a", "a_", "1a", "a b", "a;", "a\n", "EOF", 3])
def test_names_that_are_no_plain_words(name):
    with pytest.raises(
        ValueError, match="^agent: expected small letters a to z, digits, and single _ between them, got the name "
    ):
        _vocabulary(name)


def _vocabulary(name):
    return Vocabulary(frozenset(), {}, frozenset(), frozenset({name}), {}, frozenset(), order, order)
