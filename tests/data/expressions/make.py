"""Expressions and their values by NumPy, for tests/unit/test_expr.c.

Writes values.txt: random texts, parsed by Python's own parser and computed by NumPy (`and`, `or`,
`not` and chained comparisons element by element), each with its six elements; and indices.txt:
random subscripts of arange(120).reshape(4, 5, 6), each with the shape of the result and the sum of
its elements, the k-th one times k + 1. Usage: python3 make.py, in this folder.
"""
import ast
import random
import warnings

import numpy as np

warnings.simplefilter("error")
random.seed(30)
NAMES = {
    "a": np.array([[0.5, -1.25, 2.0], [3.5, -0.75, 1.0]]),
    "b": np.array([[1.5, 2.25, -3.0], [0.25, 4.0, -2.5]]),
    "m": np.array([[3, -2, 7], [5, 1, -4]]),
    "n": np.array([[2, 5, 1], [3, 4, 6]]),
}
BINARY = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide, ast.Mod: np.remainder, ast.Pow: np.power,
    ast.BitOr: np.bitwise_or, ast.BitXor: np.bitwise_xor, ast.BitAnd: np.bitwise_and,
    ast.LShift: np.left_shift, ast.RShift: np.right_shift,
}
COMPARE = {ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater,
           ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal}
BITS = (ast.BitOr, ast.BitXor, ast.BitAnd)
PYTHON = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//",
          ast.Mod: "%", ast.Pow: "**", ast.BitOr: "|", ast.BitXor: "^", ast.BitAnd: "&",
          ast.LShift: "<<", ast.RShift: ">>"}


class Skip(Exception):
    pass


def is_array(v):
    return isinstance(v, np.ndarray)


def binary(op, x, y):
    boolean = [np.asarray(v).dtype == bool for v in (x, y)]
    if any(boolean) and not (isinstance(op, BITS) and all(boolean)):
        raise Skip
    if isinstance(op, (ast.LShift, ast.RShift)) and not np.all((0 <= np.asarray(y)) & (np.asarray(y) < 40)):
        raise Skip
    if not is_array(x) and not is_array(y):
        r = eval(f"({x!r}) {PYTHON[type(op)]} ({y!r})")
    else:
        r = BINARY[type(op)](x, y)
    if isinstance(r, complex) or not np.all(np.isfinite(r)) or np.any(np.abs(np.asarray(r, float)) > 2.0**50):
        raise Skip
    return r


def value(node):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return NAMES[node.id]
    if isinstance(node, ast.BinOp):
        return binary(node.op, value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp):
        v = value(node.operand)
        if np.asarray(v).dtype == bool and not isinstance(node.op, (ast.Not, ast.Invert)):
            raise Skip
        if isinstance(node.op, ast.Not):
            return np.logical_not(v) if is_array(v) else not v
        if isinstance(node.op, ast.Invert):
            if not is_array(v) and isinstance(v, bool):
                raise Skip
            return ~v
        return -v if isinstance(node.op, ast.USub) else +v
    if isinstance(node, ast.Compare):
        terms = [value(v) for v in [node.left] + node.comparators]
        links = [COMPARE[type(op)](x, y) for op, x, y in zip(node.ops, terms, terms[1:])]
        r = links[0]
        for link in links[1:]:
            r = np.logical_and(r, link)
        return r if is_array(r) else bool(r)
    if isinstance(node, ast.BoolOp):
        terms = [value(v) for v in node.values]
        if not all(map(is_array, terms)):
            raise Skip
        r = terms[0]
        for t in terms[1:]:
            r = (np.logical_and if isinstance(node.op, ast.And) else np.logical_or)(r, t)
        return r
    raise Skip


def atom(depth):
    k = random.random()
    if k < 0.55:
        return random.choice("abmn")
    if k < 0.85 or depth > 2:
        return random.choice(["1", "2", "3", "7", "0.5", "1.5", "2e1", ".25", "0x1F", "1_0"])
    return "(" + text(depth + 1) + ")"


def operand(depth):
    sign = random.choice(["", "", "", "", "-", "+", "~", "--"])
    power = "**" + random.choice(["", "", "-"]) + atom(depth) if random.random() < 0.12 else ""
    return sign + atom(depth) + power


def text(depth=0):
    ops = random.choice([["+", "-", "*", "/", "//", "%"], ["|", "^", "&", "<<", ">>", "+", "-", "*"],
                         ["<", "<=", "==", "!=", ">", ">=", "+", "*"],
                         [" and ", " or ", "<", ">", "+", " and not ", " or not "],
                         ["+", "-", "*", "<", ">", "&", "|", "^"]])
    s = random.choice(["", "", "", "", "not "]) + operand(depth) if depth == 0 else operand(depth)
    for _ in range(random.randint(1, 5)):
        s += random.choice([" ", ""]) + random.choice(ops) + random.choice([" ", ""]) + operand(depth)
    return s


def values(count):
    seen, lines, bools = set(), [], 0
    while len(lines) < count:
        s = text()
        try:
            r = value(ast.parse(s, mode="eval").body)
        except (Skip, SyntaxError, ArithmeticError, TypeError, ValueError, RuntimeWarning):
            continue
        is_bool = is_array(r) and r.dtype == bool
        if not is_array(r) or s in seen or (is_bool and bools > count // 3):
            continue
        bools += is_bool
        seen.add(s)
        lines.append(s + "\t" + " ".join(float(v).hex() for v in r.ravel()))
    return lines


def index(rank):
    def bound():
        return random.choice(["", "", str(random.randint(-7, 7))])

    def one():
        k = random.random()
        if k < 0.3:
            return str(random.randint(-4, 3))
        if k < 0.75:
            step = random.choice(["", "", ":", ":2", ":-1", ":-2", ":3"])
            return bound() + ":" + bound() + step
        return random.choice(["None", "...", "i", "j"])

    items = [one() for _ in range(random.randint(1, 4))]
    basic = [s for s in items if s not in ("i", "j")]
    if len(basic) < len(items) and any(s.lstrip("-").isdigit() or s in ("None", "...") for s in basic):
        raise Skip
    return ", ".join(items)


def indices(count):
    x = np.arange(120).reshape(4, 5, 6)
    i, j = np.array([3, 0, 1]), np.array([[2], [-1]])
    seen, lines = set(), []
    while len(lines) < count:
        try:
            s = index(3)
            r = eval(f"x[{s}]", {"x": x, "i": i, "j": j})
        except (Skip, IndexError):
            continue
        if s in seen or not is_array(r):
            continue
        seen.add(s)
        total = int((r.ravel() * (np.arange(r.size) + 1)).sum())
        lines.append(f"x[{s}]\t{' '.join(map(str, r.shape))}\t{total}")
    return lines


for name, lines in (("values.txt", values(400)), ("indices.txt", indices(150))):
    with open(name, "w") as f:
        f.write("\n".join(lines) + "\n")
