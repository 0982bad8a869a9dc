#!/usr/bin/env python3
"""Evaluates AMD's published instruction pseudocode on edge and random operands.

Writes gfx11.txt and gfx12.txt beside itself; `src/exec/vectors.rs` checks the executor against them:
for every opcode 1,024 operand sets made from a seed, 32 of them and their results literally, of all the
results a digest (BLAKE3, 128 bits; the Python package blake3). The Rust test makes the same sets.
The pseudocode and opcode numbers come from the Python package tinygrad 0.14.0 (MIT), modules
runtime.autogen.amd.{rdna3,rdna4}.str_pcode, which were extracted from AMD's ISA documents. Nothing
here is derived from the executor. Run by hand; tests only read the text files.

Entry: "[mnemonic] SETS DIGEST", SETS being 11, 12 or 11,12; DIGEST "near" where AMD documents one unit in
the last place only. Then 32 lines "a b c old scc vcc = d mask scc exec" in hexadecimal; NaN results are the
canonical one, a result that is not written is the old value. For atomics `old` is the memory cell before, `d`
what is returned, `mask` the cell after. "! mnemonic: reason" lists every text that was replaced.

    python3 -m pip install tinygrad==0.14.0 blake3 && python3 generate.py [mnemonic...]
"""
import importlib
import math
import re
import struct
import sys
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import blake3

HERE = Path(__file__).resolve().parent
SRC = HERE.parent.parent / "src" / "isa"


# ---- values ----------------------------------------------------------------------------------------

def unpack(bits, size):
    if size == 64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if size == 32:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def round_to(value, size):
    """Bits of a float rounded to nearest even at a size, from an exact Fraction or a float."""
    if isinstance(value, float):
        if math.isnan(value):
            return {64: 0x7FF8 << 48, 32: 0x7FC00000, 16: 0x7E00}[size]
        if math.isinf(value):
            sign = value < 0
            inf = {64: 0x7FF << 52, 32: 0x7F800000, 16: 0x7C00}[size]
            return inf | (1 << (size - 1) if sign else 0)
        negative_zero = value == 0 and math.copysign(1, value) < 0
        value = Fraction(value)
        if negative_zero:
            return 1 << (size - 1)
    mant, emin = {64: (52, -1022), 32: (23, -126), 16: (10, -14)}[size]
    ebits = size - 1 - mant
    sign = value < 0
    value = abs(value)
    if value == 0:
        return 0
    e = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** e > value:
        e -= 1
    e = max(e, emin)
    scaled = value / Fraction(2) ** (e - mant)
    n = scaled.numerator // scaled.denominator
    rest = scaled - n
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n & 1):
        n += 1
    if n >= 1 << (mant + 1):
        n >>= 1
        e += 1
    bias = (1 << (ebits - 1)) - 1
    if e > bias:
        bits = ((1 << ebits) - 1) << mant
    elif n < 1 << mant:
        bits = n
    else:
        bits = ((e + bias) << mant) | (n - (1 << mant))
    return bits | (1 << (size - 1) if sign else 0)


class V:
    """A typed value: kind u, i, f or b, size in bits, raw bits."""

    def __init__(self, bits, size, kind):
        self.bits, self.size, self.kind = bits & ((1 << size) - 1), size, kind

    def num(self):
        if self.kind == "f":
            return unpack(self.bits, self.size)
        if self.kind == "i" and self.bits >> (self.size - 1):
            return self.bits - (1 << self.size)
        return self.bits

    def true(self):
        return self.num() != 0


def V_int(n, size=32, kind="i"):
    return V(n, size, kind)


def V_float(x, size):
    return V(round_to(x, size), size, "f")


def flag(x):
    return V(1 if x else 0, 1, "u")


def is_nan(v):
    return v.kind == "f" and math.isnan(v.num())


def mantissa_bits(size):
    return {64: 52, 32: 23, 16: 10}[size]


# The pseudocode widens to 64'F before it asks for signalling NaNs; widening keeps the quiet bit here.
def widen_float(v, size):
    if size == v.size:
        return v
    if is_nan(v) and size > v.size:
        ms, md = mantissa_bits(v.size), mantissa_bits(size)
        payload = (v.bits & ((1 << ms) - 1)) << (md - ms)
        sign = v.bits >> (v.size - 1)
        return V(sign << (size - 1) | (((1 << (size - 1 - md)) - 1) << md) | payload, size, "f")
    if is_nan(v) and size < v.size:
        ms, md = mantissa_bits(size), mantissa_bits(v.size)
        payload = (v.bits & ((1 << md) - 1)) >> (md - ms)
        sign = v.bits >> (v.size - 1)
        return V(sign << (size - 1) | (((1 << (size - 1 - ms)) - 1) << ms) | payload, size, "f")
    return V_float(v.num(), size)


def signalling(v):
    return is_nan(v) and not v.bits >> (mantissa_bits(v.size) - 1) & 1


def cast(v, size, kind):
    if kind == "f":
        if v.kind == "f":
            return widen_float(v, size)
        # 32'F(0xffc00000) reinterprets, 32'F(PI) of a float rounds.
        return V(v.bits, size, "f") if v.kind == "b" or v.size >= size else V_float(float(v.num()), size)
    if v.kind == "f":
        return V(v.bits, size, kind)
    return V(v.num(), size, kind)


# ---- functions of the pseudocode -------------------------------------------------------------------

def exact(v):
    return Fraction(v.num())


def fma(a, b, c):
    x, y, z = a.num(), b.num(), c.num()
    if math.isfinite(x) and math.isfinite(y) and math.isinf(z):
        return V_float(z, a.size)
    if any(math.isnan(t) or math.isinf(t) for t in (x, y, z)):
        p = x * y if not (0 in (x, y) and math.inf in (abs(x), abs(y))) else math.nan
        return V_float(p + z, a.size)
    r = Fraction(x) * Fraction(y) + Fraction(z)
    if r == 0:
        p = math.copysign(1, x) * math.copysign(1, y)
        zero = -0.0 if (p < 0 and math.copysign(1, z) < 0) else 0.0
        if Fraction(x) * Fraction(y) != 0:
            zero = 0.0
        return V_float(zero, a.size)
    return V(round_to(r, a.size), a.size, "f")


def ldexp(a, n):
    x, n = a.num(), max(-5000, min(5000, n.num()))
    if math.isnan(x) or math.isinf(x) or x == 0:
        return a
    r = Fraction(x) * (Fraction(2) ** n if n >= 0 else 1 / Fraction(2) ** -n)
    return V(round_to(r, a.size), a.size, "f")


def to_int(v, lo, hi, size, kind):
    x = v.num()
    if math.isnan(x):
        return V(0, size, kind)
    x = max(min(x, 1e300), -1e300)
    return V(max(lo, min(hi, math.trunc(x))), size, kind)


def rounding(f):
    def g(v):
        x = v.num()
        if math.isnan(x) or math.isinf(x) or x == 0:
            return v if not math.isnan(x) else V_float(x, v.size)
        r = float(f(x))
        return V_float(math.copysign(r, x) if r == 0 else r, v.size)
    return g


def exponent(v):
    m = mantissa_bits(v.size)
    return V_int(v.bits >> m & ((1 << (v.size - 1 - m)) - 1))


def mantissa(v):
    m, _ = math.frexp(v.num())
    return V_float(m, v.size)


def extreme(pick):
    def g(a, b):
        return pick(a, b)
    return g


def quiet(v):
    return V(v.bits | 1 << (mantissa_bits(v.size) - 1), v.size, "f")


def sizes(f):
    return lambda v: V_float(f(v.num()), v.size)


def safe(f):
    def g(x):
        try:
            return f(x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None
    return g


def log2(x):
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    return math.log2(x) if not math.isinf(x) else x


def sqrt(x):
    if math.isnan(x) or x < 0:
        return math.nan
    return math.sqrt(x) if not math.isinf(x) else x


def power(a, b):
    base, x = a.num(), b.num()
    if math.isnan(x):
        return V_float(math.nan, b.size)
    if x > 1000:
        return V_float(math.inf, b.size)
    if x < -1000:
        return V_float(0.0, b.size)
    return V_float(base ** x, b.size)


def trig(f):
    def g(v):
        x = v.num()
        return V_float(f(x) if math.isfinite(x) else math.nan, v.size)
    return g


def int_to_float(size):
    return lambda v: V(round_to(Fraction(v.num()), size), size, "f")


FUNCTIONS = {
    "isNAN": lambda v: flag(is_nan(v)),
    "isSignalNAN": lambda v: flag(signalling(v)),
    "isQuietNAN": lambda v: flag(is_nan(v) and not signalling(v)),
    "cvtToQuietNAN": quiet,
    "sign": lambda v: flag(v.bits >> (v.size - 1)),
    "abs": lambda v: V(v.bits & ~(1 << (v.size - 1)), v.size, "f") if v.kind == "f" else V(abs(v.num()), v.size, v.kind),
    "exponent": exponent,
    "mantissa": mantissa,
    "fma": fma,
    "ldexp": ldexp,
    "floor": rounding(math.floor),
    "trunc": rounding(math.trunc),
    "ceil": rounding(math.ceil),
    "rint": rounding(round),
    "frexp_exp": lambda v: V_int(math.frexp(v.num())[1] if math.isfinite(v.num()) else 0),
    "below_one": lambda v: V_float(min(v.num(), 1 - 2.0 ** -(mantissa_bits(v.size) + 1)) if not is_nan(v) else math.nan, v.size),
    "fract": lambda v: V_float(v.num() - math.floor(v.num()) if math.isfinite(v.num()) else math.nan, v.size),
    "sqrt": sizes(sqrt),
    "log2": sizes(log2),
    "pow": power,
    "sin": trig(math.sin),
    "cos": trig(math.cos),
    "isEven": lambda v: flag(math.floor(v.num()) % 2 == 0 if math.isfinite(v.num()) else False),
    "f16_to_f32": lambda v: widen_float(V(v.bits, 16, "f"), 32),
    "f32_to_f16": lambda v: V(0x7E00 | v.bits >> 16 & 0x8000, 16, "f") if is_nan(v) else widen_float(v, 16),
    "f32_to_f64": lambda v: widen_float(v, 64),
    "f64_to_f32": lambda v: widen_float(v, 32),
    "i32_to_f32": int_to_float(32), "u32_to_f32": int_to_float(32),
    "i32_to_f64": int_to_float(64), "u32_to_f64": int_to_float(64),
    "u16_to_f16": int_to_float(16), "i16_to_f16": int_to_float(16),
    "f32_to_i32": lambda v: to_int(v, -2**31, 2**31 - 1, 32, "i"),
    "f32_to_u32": lambda v: to_int(v, 0, 2**32 - 1, 32, "u"),
    "f64_to_i32": lambda v: to_int(v, -2**31, 2**31 - 1, 32, "i"),
    "f64_to_u32": lambda v: to_int(v, 0, 2**32 - 1, 32, "u"),
    "f16_to_i16": lambda v: to_int(v, -2**15, 2**15 - 1, 16, "i"),
    "f16_to_u16": lambda v: to_int(v, 0, 2**16 - 1, 16, "u"),
    "v_cvt_i16_f32": lambda v: to_int(v, -2**15, 2**15 - 1, 16, "i"),
    "v_cvt_u16_f32": lambda v: to_int(v, 0, 2**16 - 1, 16, "u"),
    "u32_to_u16": lambda v: V(min(v.num(), 0xFFFF), 16, "u"),
    "i32_to_i16": lambda v: V(max(-32768, min(32767, v.num())), 16, "i"),
    "u8_to_u32": lambda v: V(v.bits & 0xFF, 32, "u"),
    "u4_to_u32": lambda v: V(v.bits & 0xF, 32, "u"),
    "signext": lambda v: V(V(v.bits, v.size, "i").num(), 64, "i"),
    "s_nop": lambda v: V_int(0),
}


def signext_from_bit(v, n):
    n = n.num()
    if n == 0:
        return V(0, v.size, "i")
    x = v.bits & ((1 << n) - 1)
    return V(x - (1 << n) if x >> (n - 1) & 1 else x, v.size, "i")


FUNCTIONS["signext_from_bit"] = signext_from_bit


def rtz_half(v):
    """Toward zero: the nearest half, or the one before it if that is larger in magnitude."""
    x = v.num()
    bits = round_to(x, 16)
    if math.isnan(x):
        return V(bits | v.bits >> 16 & 0x8000, 16, "b")
    if math.isfinite(x) and abs(unpack(bits, 16)) > abs(x):
        bits -= 1
    return V(bits, 16, "b")


FUNCTIONS["rtz_half"] = rtz_half


# ---- interpreter -----------------------------------------------------------------------------------

TOKEN = re.compile(
    r"\s*(?:(?P<cast>\d+'[UIFB](?![0-9A-Za-z]))|(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U)?)"
    r"|(?P<num>0x[0-9a-fA-F]+(?:ULL|LL|U)?|\d+\.\d+(?:e[+-]?\d+)?F?|\d+(?:ULL|LL|U|F)?)"
    r"|(?P<id>[A-Za-z_][A-Za-z_0-9]*)|(?P<op>\*\*|>>|<<|>=|<=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!?:()\[\]{},.;<>=]))"
)


@lru_cache(maxsize=None)
def tokens(text):
    text = re.sub(r"//[^\n]*|TRAPSTS\.INVALID = 1", "", text)
    # x[i +: n], the n bits from i on, which is only used of S0.
    text = re.sub(r"(S0\.u\d+)\[([^\]]+?) \+: (?:\d+')?(\d+)U?\]", lambda m: f"(({m[1]} >> ({m[2]})) & {(1 << int(m[3])) - 1})", text)
    out, pos = [], 0
    while pos < len(text):
        if text[pos:].strip() == "":
            break
        m = TOKEN.match(text, pos)
        if not m:
            raise SyntaxError(text[pos:pos + 30])
        out.append((m.lastgroup, m.group(m.lastgroup)))
        pos = m.end()
    return tuple(out)


BINARY = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"], ["**"]]


class Break(Exception):
    pass


class Run:
    def __init__(self, text, env, consts):
        self.t, self.i, self.env, self.consts = tokens(text), 0, env, consts

    def peek(self, k=0):
        return self.t[self.i + k][1] if self.i + k < len(self.t) else None

    def take(self, want=None):
        tok = self.t[self.i]
        if want is not None and tok[1] != want:
            raise SyntaxError(f"want {want}, have {tok} at {self.t[self.i-3:self.i+4]}")
        self.i += 1
        return tok

    # statements
    def block(self, stop, live):
        while self.peek() is not None and self.peek() not in stop:
            self.statement(live)

    def statement(self, live):
        p = self.peek()
        if p == ";":
            self.take()
        elif p == "if":
            self.branch(live)
        elif p == "for":
            self.loop(live)
        elif p == "declare":
            self.take()
            name = self.take()[1]
            self.take(":")
            kind = self.take()
            size, k = kind[1].split("'") if "'" in kind[1] else ("32", "U")
            if self.peek() == "[":
                self.take(); n = int(self.take()[1]); self.take("]")
                self.env[name] = [V(0, 32, "i") for _ in range(n)]
            else:
                self.env[name] = V(0, 64, "b")
        elif p == "break":
            self.take()
            if live:
                raise Break
        elif p == "{":
            # { D1.u1, D0.u64 } = value
            self.take(); self.take("D1"); self.take("."); self.take(); self.take(","); self.take("D0"); self.take("."); self.take()
            self.take("}"); self.take("=")
            v = self.expr()
            self.env["D0"] = V(v.bits, 64, "b")
            self.env["D1"] = V(v.bits >> 64, 64, "b")
            self.env.setdefault("_written", set()).update(("D0", "D1"))
        elif self.peek(1) == "=" and self.peek(2) == "lambda":
            self.function()
        else:
            self.assign(live)

    def branch(self, live):
        self.take("if")
        done = False
        cond = self.expr() if True else None
        self.take("then")
        on = live and cond.true()
        done |= on
        self.block({"elsif", "else", "endif"}, on)
        while self.peek() == "elsif":
            self.take()
            cond = self.expr()
            self.take("then")
            on = live and not done and cond.true()
            done |= on
            self.block({"elsif", "else", "endif"}, on)
        if self.peek() == "else":
            self.take()
            self.block({"endif"}, live and not done)
        self.take("endif")

    def loop(self, live):
        self.take("for")
        name = self.take()[1]
        self.take("in")
        lo = self.expr().num(); self.take(":"); hi = self.expr().num(); self.take("do")
        start = end = self.i
        depth = 1
        while depth:
            depth += (self.t[end][1] == "for") - (self.t[end][1] == "endfor")
            end += 1
        try:
            for n in range(lo, hi + 1):
                self.i = start
                self.env[name] = V_int(n)
                self.block({"endfor"}, live)
        except Break:
            pass
        self.i = end

    def function(self):
        name = self.take()[1]
        self.take("="); self.take("lambda"); self.take("(")
        params = []
        while self.peek() != ")":
            params.append(self.take()[1])
            if self.peek() == ",":
                self.take()
        self.take(")"); self.take("(")
        depth, start = 1, self.i
        while depth:
            tok = self.take()[1]
            depth += (tok == "(") - (tok == ")")
        body = self.t[start:self.i - 1]

        def call(*args):
            inner = Run("", dict(self.env), self.consts)
            inner.env.update(zip(params, args))
            inner.t = body
            if any(t[1] == "return" for t in body):
                return inner.returning()
            return inner.expr()
        self.env[name] = call

    def returning(self):
        """A lambda body made of declarations, loops and if/return chains."""
        while self.peek() is not None:
            if self.peek() == "if":
                self.take()
                while True:
                    cond = self.expr(); self.take("then"); self.take("return")
                    value = self.expr()
                    if cond.true():
                        return value
                    if self.peek() == ";":
                        self.take()
                    nxt = self.take()[1]
                    if nxt == "elsif":
                        continue
                    if nxt == "else":
                        self.take("return")
                        return self.expr()
            else:
                self.statement(True)
        raise SyntaxError("no return")

    def assign(self, live):
        start = self.i
        name = self.take()[1]
        index = bits = kind = None
        while self.peek() in (".", "["):
            if self.take()[1] == ".":
                kind = self.take()[1]
            else:
                a = self.expr()
                if self.peek() == ":":
                    self.take()
                    bits = (a.num(), self.expr().num())
                else:
                    index = a.num()
                self.take("]")
        op = self.peek()
        if op not in ("=", "+=", "-="):
            self.i = start
            self.expr()
            return
        self.take()
        value = self.expr()
        if not live:
            return
        if op != "=":
            end, self.i = self.i, start
            old = self.postfix()
            self.i = end
            value = self.binary_op(op[0], old, value)
        self.store(name, index, bits, kind, value)

    def store(self, name, index, bits, kind, value):
        cur = self.env.get(name)
        if isinstance(cur, list):
            cur[index] = value
            return
        if kind:
            k, size = kind[0], int(kind[1:] or 32)
            if k == "f" and value.kind != "f":
                value = cast(value, size, "f")
            elif k == "f":
                value = widen_float(value, size)
            elif index is None:
                value = V(value.bits if value.kind == "f" else value.num(), size, k)
        if name in ("D0", "D1", "VCC", "EXEC", "SCC") or bits or index is not None:
            old = cur.bits if isinstance(cur, V) else 0
            width = cur.size if isinstance(cur, V) else 64
            if index is not None:
                new = old & ~(1 << index) | (value.bits & 1) << index
            elif bits:
                hi, lo = bits
                mask = ((1 << (hi - lo + 1)) - 1) << lo
                new = old & ~mask | (value.bits << lo) & mask
            elif kind:
                size = value.size
                new = old & ~((1 << size) - 1) | value.bits if name == "D0" else value.bits
            else:
                new = value.bits
            self.env[name] = V(new, width, "b")
            self.env.setdefault("_written", set()).add(name)
            if name == "D0" and index is not None:
                self.env["_mask"] = value.bits & 1
            return
        self.env[name] = value

    # expressions
    def expr(self):
        cond = self.level(0)
        if self.peek() == "?":
            self.take()
            a = self.expr(); self.take(":"); b = self.expr()
            return a if cond.true() else b
        return cond

    def level(self, n):
        if n == len(BINARY):
            return self.unary()
        left = self.level(n + 1)
        while self.peek() in BINARY[n] and self.t[self.i][0] == "op":
            op = self.take()[1]
            left = self.binary_op(op, left, self.level(n + 1))
        return left

    def binary_op(self, op, a, b):
        if op in ("&&", "||"):
            return flag((a.true() and b.true()) if op == "&&" else (a.true() or b.true()))
        if "f" in (a.kind, b.kind):
            size = max(v.size for v in (a, b) if v.kind == "f")
            x, y = a.num(), b.num()
            compare = {"==": lambda: x == y, "!=": lambda: x != y, "<>": lambda: x < y or x > y, "<": lambda: x < y,
                       ">": lambda: x > y, "<=": lambda: x <= y, ">=": lambda: x >= y}
            if op in compare:
                return flag(compare[op]())
            x, y = float(x), float(y)
            if op == "/":
                if y == 0:
                    r = math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y)
                elif math.isfinite(x) and math.isfinite(y) and x != 0:
                    return V(round_to(Fraction(x) / Fraction(y), size), size, "f")
                else:
                    r = x / y
                return V_float(r, size)
            if op == "**":
                if x == 2.0 and isinstance(b.num(), int):
                    return ("pow2", b.num(), size)
                return V_float(x ** y, size)
            if isinstance(a, tuple) or isinstance(b, tuple):
                raise SyntaxError
            if math.isfinite(x) and math.isfinite(y) and x != 0 and y != 0 and (op != "+" or x != -y) and (op != "-" or x != y):
                fx, fy = Fraction(x), Fraction(y)
                r = {"+": fx + fy, "-": fx - fy, "*": fx * fy}[op]
                return V(round_to(r, size), size, "f")
            r = {"+": lambda: x + y, "-": lambda: x - y,
                 "*": lambda: math.nan if (0 in (x, y) and math.inf in (abs(x), abs(y))) else x * y}[op]()
            return V_float(r, size)
        x, y = a.num(), b.num()
        if op in ("==", "!=", "<>", "<", ">", "<=", ">="):
            if "b" in (a.kind, b.kind):
                x, y = a.bits, b.bits
            return flag({"==": x == y, "!=": x != y, "<>": x != y, "<": x < y, ">": x > y, "<=": x <= y, ">=": x >= y}[op])
        # Parts of registers take part in sums as whole registers.
        narrow = op in ("+", "-", "*", "<<") and max(a.size, b.size) < 16
        size = 32 if narrow else max(a.size, b.size)
        kind = a.kind if op in ("<<", ">>") else ("u" if "u" in (a.kind, b.kind) and a.size == b.size else
                                                  (a.kind if a.size >= b.size else b.kind))
        if op in ("<<", ">>"):
            size = 32 if narrow else a.size
            r = x << y if op == "<<" else x >> y
        elif op in ("&", "|", "^"):
            r = {"&": a.num() & b.num(), "|": a.num() | b.num(), "^": a.num() ^ b.num()}[op]
        else:
            r = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y,
                 "/": lambda: int(Fraction(x, y)), "%": lambda: x % y, "**": lambda: x ** y}[op]()
        return V(r, size, kind)

    def unary(self):
        p = self.peek()
        if self.t[self.i][0] == "op" and p in ("-", "!", "~", "+"):
            self.take()
            v = self.unary()
            if p == "+":
                return v
            if p == "!":
                return flag(not v.true())
            if p == "~":
                return V(~v.bits, v.size, v.kind)
            if v.kind == "f":
                return V(v.bits ^ 1 << (v.size - 1), v.size, "f")
            return V(-v.num(), v.size, v.kind)
        return self.postfix()

    def postfix(self):
        v = self.primary()
        while self.peek() in (".", "["):
            if self.take()[1] == ".":
                kind = self.take()[1]
                k, size = kind[0], int(kind[1:] or 32)
                v = V(v.bits, size, k)
            elif isinstance(v, list):
                v = v[self.expr().num()]
                self.take("]")
            else:
                a = self.expr()
                if self.peek() == ":":
                    self.take()
                    b = self.expr()
                    hi, lo = a.num(), b.num()
                    if hi < lo:
                        # A reversed range reverses the bits.
                        n = lo - hi + 1
                        v = V(int(f"{v.bits >> hi & ((1 << n) - 1):0{n}b}"[::-1], 2), n, "u")
                        self.take("]")
                        continue
                    v = V(v.bits >> lo, hi - lo + 1, "u" if v.kind != "f" else "b")
                else:
                    v = V(v.bits >> a.num(), 1, "u")
                self.take("]")
        return v

    def primary(self):
        group, text = self.take()
        if group == "cast":
            size, kind = text.split("'")
            self.take("(")
            v = self.expr()
            self.take(")")
            return cast(v, int(size), kind.lower())
        if group == "sized":
            size, n = text.split("'")
            if "." in n:
                return V_float(float(n), int(size))
            return V(int(n.rstrip("UL"), 0), int(size), "u")
        if group == "num":
            if text.startswith("0x"):
                n = text.rstrip("UL")
                size = 64 if text.endswith("LL") else 32
                return V(int(n, 16), size, "b" if not text.endswith(("U", "L")) else "u")
            if "." in text or text.endswith("F"):
                return V_float(float(text.rstrip("F")), 32 if text.endswith("F") else 64)
            kind = "u" if "U" in text else "i"
            return V(int(text.rstrip("UL")), 64 if text.endswith("LL") else 32, kind)
        if text == "(":
            v = self.expr()
            self.take(")")
            return v
        if text == "{":
            parts = [self.expr()]
            while self.peek() == ",":
                self.take()
                parts.append(self.expr())
            self.take("}")
            bits = size = 0
            for p in parts:
                bits = bits << p.size | p.bits
                size += p.size
            return V(bits, size, "b")
        if self.peek() == "(" and group == "id":
            self.take()
            args = []
            while self.peek() != ")":
                args.append(self.expr())
                if self.peek() == ",":
                    self.take()
            self.take(")")
            f = self.env.get(text) or FUNCTIONS.get(text) or self.consts.call(text)
            return f(*args)
        if text in self.env:
            return self.env[text]
        named = {"PI": V_float(math.pi, 64), "INF": V_float(math.inf, 64), "MAX_FLOAT_F32": V(0x7F7FFFFF, 32, "f"), "laneId": V_int(0), "WAVE32": flag(1), "WAVE64": flag(0)}
        if text == "INF" and self.peek() == ".":
            self.take(); k = self.take()[1]
            return V_float(math.inf, int(k[1:]))
        if text == "NAN" and self.peek() == ".":
            self.take(); k = self.take()[1]
            return V_float(math.nan, int(k[1:]))
        if text.startswith("UNDERFLOW"):
            return V(0, int(text[-2:]), "f")
        if text.startswith("OVERFLOW"):
            return V_float(math.inf, int(text[-2:]))
        if text == "WAVE_MODE":
            self.take("."); self.take()
            return flag(1)
        if text in named:
            return named[text]
        raise SyntaxError(text)


class Table:
    """Pseudocode by mnemonic, callable from other pseudocode (v_max_f32 inside v_max3_f32)."""

    def __init__(self, module):
        pcode = importlib.import_module(f"tinygrad.runtime.autogen.amd.{module}.str_pcode").PCODE
        self.code = {}
        for k, v in pcode.items():
            name = re.sub("_e32$|_e64$", "", k.name.lower())
            self.code.setdefault(name, v)

    def call(self, name):
        if name not in self.code:
            raise SyntaxError(name)

        def f(*args):
            env = {"D0": V(0, 64, "b")}
            for i, a in enumerate(args):
                env[f"S{i}"] = a
            Run(self.code[name], env, self).block(set(), True)
            # Sums of bytes are as wide as a register, whatever the name says.
            kind = "u32" if name in ("v_sad_u8", "v_msad_u8") else name.rsplit("_", 1)[1]
            return V(env["D0"].bits, int(kind[1:]), kind[0])
        return f


# ---- operands --------------------------------------------------------------------------------------

SETS = 1024
LITERAL = 32
MASK64 = (1 << 64) - 1

F32 = [0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x40490FDB, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00000001,
       0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x33800000, 0x4B000001, 0xC2FE0000, 0x3EFFFFFF, 0x4F000000, 0xCF000001, 0x477FE000]
F64 = [0, 1 << 63, 0x3FF << 52, 0xBFF << 52, 0x400921FB54442D18, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 1, 0x000FFFFFFFFFFFFF,
       0x0010 << 48, 0x7FEFFFFFFFFFFFFF, 0x41DFFFFFFFC00000, 0xC1E0000000200000, 0x3CA0 << 48, 0x4330000000000001]
F16 = [0, 0x8000, 0x3C00, 0xBC00, 0x4248, 0x7C00, 0xFC00, 0x7E00, 1, 0x83FF, 0x0400, 0x7BFF, 0x3555, 0x5640, 0x7C01, 0xB800]
INT = [0, 1, 2, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x12345678, 0xDEADBEEF, 31, 32, 0xFFFF, 0x00FF00FF, 0x80008000, 0x7F80FF01]


class Source:
    """SplitMix64, started from the FNV-1a hash of the mnemonic."""

    def __init__(self, name):
        self.state = 0xCBF29CE484222325
        for byte in name.encode():
            self.state = (self.state ^ byte) * 0x100000001B3 & MASK64

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        x = self.state
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
        return x ^ x >> 31


def operand(source, ty, edge):
    a, b = source.next(), source.next()
    if ty == "f":
        if edge:
            return F32[a % len(F32)]
        return b & 0xFFFFFFFF if a & 3 == 0 else b >> 63 << 31 | (107 + (b >> 40) % 41) << 23 | b & 0x7FFFFF
    if ty == "d":
        if edge:
            return F64[a % len(F64)]
        return b if a & 3 == 0 else b >> 63 << 63 | (963 + (b >> 52 & 0x7FF) % 121) << 52 | b & (1 << 52) - 1
    if ty in "hw":
        return (F16[a % len(F16)] if edge else a >> 32 & 0xFFFF) | (b & 0xFFFF) << 16
    if ty == "p":
        return F16[a % len(F16)] | F16[(a >> 32) % len(F16)] << 16 if edge else b & 0xFFFFFFFF
    if ty in "qj":
        return INT[a % len(INT)] | INT[(a >> 32) % len(INT)] << 32 if edge else b
    value = INT[a % len(INT)] if edge else b & 0xFFFFFFFF
    return value & {"m": 1, "k": 0xFFFF}.get(ty, 0xFFFFFFFF) if ty else 0


def operands(source, types, dst):
    r = source.next()
    case = [operand(source, t, r >> k & 1) if t else 0 for k, t in enumerate(types)]
    old = operand(source, dst or "b", r >> 3 & 1)
    return case + [old, r >> 8 & 1, case[2] if types[2] == "m" else r >> 9 & 1]


# ---- rows ------------------------------------------------------------------------------------------

ROW = re.compile(r'^    (\w+)\(Format::(\w+), 0x\w+, (?:0x\w+, )?"([a-z0-9_]+)", "([^"]*)", Op::(\w+)')
COLUMNS = {"both": (11, 12), "moved": (11, 12), "scalar_float": (11, 12), "gfx11": (11,), "gfx11_scalar_float": (11,), "gfx12": (12,)}
ATOMICS = ("DsAtomic", "GAtomic", "FlatAtomic")


def rows():
    for path in sorted(SRC.glob("table/*.rs")):
        for line in path.read_text().splitlines():
            m = ROW.match(line)
            if m:
                yield COLUMNS[m[1]], m[2], m[3], m[4], m[5]


# Not functions of a lane's or the scalar unit's operands, or with operands this cannot hold; tested elsewhere.
SKIP = re.compile(
    r"^(ds_(?!.*(add|sub|inc|dec|min|max|and|or|xor|mskor|cmpstore|wrap|storexchg_rtn)_)|ds_.*(addtid|2addr|condxchg|permute|swizzle)|"
    r"global_(?!atomic)|flat_(?!atomic)|flat_atomic_csub|.*pk_add_(rtn_)?bf16|scratch|buffer_|v_dual|s_load|s_buffer|"
    r"s_barrier|s_get_barrier|s_branch|s_cbranch|s_call|s_getpc|s_setpc|s_swappc|s_rfe|s_wait|s_nop|s_sleep|s_clause|s_delay|s_set|s_getreg|"
    r"s_trap|s_send|s_wakeup|s_incperf|s_decperf|s_ttrace|s_end|s_code|s_icache|s_dcache|s_gl1|s_round|s_denorm|s_prefetch|s_atc|s_version|s_subvector|s_movrel|s_alloc|v_nop|v_pipeflush|"
    r"v_readlane|v_readfirst|v_writelane|v_permlane|v_swap|v_mbcnt|v_movrel|v_wmma|v_cvt_(pk_)?f32_(fp8|bf8)|v_cvt_pk_(fp8|bf8)|v_cvt_sr|"
    r"v_dot2_bf16|v_dot2_f32_bf16|v_dot2acc_f32_bf16|v_dot4_f32|v_mqsad_u32|v_trig)")
# One unit in the last place is what AMD documents for these.
NEAR = re.compile(r"_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f(16|32|64)$")

PK_RTZ = "D0.u32 = { rtz_half(S1.f32), rtz_half(S0.f32) }"
ROUNDS_TWICE = "the text adds 0.5 and takes the floor, which rounds twice; the operation is round to nearest even"
FREXP = "zeros and denormals as C's frexp has them, which LLVM's lowering of frexp relies on"
HIDDEN = "the text does not say how the value is rounded or where the accumulator is"
FULL_TURN = "the text rounds the argument's product with 2 pi; AMD documents one unit in the last place of the true value"
# Texts that are replaced, with the reason.
EXTRA = {
    "s_cvt_pk_rtz_f16_f32": (PK_RTZ, "the text changes the rounding mode of a conversion it then names without mode"),
    "v_cvt_pk_rtz_f16_f32": (PK_RTZ, "the text changes the rounding mode of a conversion it then names without mode"),
    "v_fmac_f32": ("D0.f32 = fma(S0.f32, S1.f32, D0.f32)", HIDDEN),
    "v_fmac_f16": ("D0.f16 = fma(S0.f16, S1.f16, D0.f16)", HIDDEN),
    "v_fmac_dx9_zero_f32": ("if S0.f32 == 0.0F || S1.f32 == 0.0F then D0.f32 = D0.f32 else D0.f32 = fma(S0.f32, S1.f32, D0.f32) endif", HIDDEN),
    "v_sat_pk_u8_i16": ("D0.b16 = { sat8(S0[31 : 16].i16), sat8(S0[15 : 0].i16) }", "gfx11's text looks for the sign of a 16-bit value in 32 bits; gfx12's does not"),
    "s_fmac_f16": ("D0.f16 = fma(S0.f16, S1.f16, D0.f16)", HIDDEN),
    "v_fma_f16": ("D0.f16 = fma(S0.f16, S1.f16, S2.f16)", HIDDEN),
    "v_fmaak_f32": ("D0.f32 = fma(S0.f32, S1.f32, S2.f32)", "the literal's place differs between the two forms; operands are in order here"),
    "v_fmamk_f32": ("D0.f32 = fma(S0.f32, S1.f32, S2.f32)", "the literal's place differs between the two forms; operands are in order here"),
    "v_fmaak_f16": ("D0.f16 = fma(S0.f16, S1.f16, S2.f16)", "the literal's place differs between the two forms; operands are in order here"),
    "v_fmamk_f16": ("D0.f16 = fma(S0.f16, S1.f16, S2.f16)", "the literal's place differs between the two forms; operands are in order here"),
    "s_fmaak_f32": ("D0.f32 = fma(S0.f32, S1.f32, S2.f32)", "the literal's place differs between the two forms; operands are in order here"),
    "s_fmamk_f32": ("D0.f32 = fma(S0.f32, S1.f32, S2.f32)", "the literal's place differs between the two forms; operands are in order here"),
    "v_ldexp_f32": ("D0.f32 = ldexp(S0.f32, S1.i32)", "the text multiplies by a power that may itself overflow"),
    "v_ldexp_f64": ("D0.f64 = ldexp(S0.f64, S1.i32)", "the text multiplies by a power that may itself overflow"),
    "v_ldexp_f16": ("D0.f16 = ldexp(S0.f16, S1.i16)", "the text multiplies by a power that may itself overflow"),
    "v_sin_f32": ("D0.f32 = turn_sin(S0.f32)", FULL_TURN),
    "v_cos_f32": ("D0.f32 = turn_cos(S0.f32)", FULL_TURN),
    "v_sin_f16": ("D0.f16 = turn_sin(S0.f16)", FULL_TURN),
    "v_cos_f16": ("D0.f16 = turn_cos(S0.f16)", FULL_TURN),
    "v_rsq_f32": ("D0.f32 = 32'F(1.0 / sqrt(64'F(S0.f32)))", "the text rounds the root before it divides"),
    "v_rsq_f16": ("D0.f16 = 16'F(1.0 / sqrt(64'F(S0.f16)))", "the text rounds the root before it divides"),
    "v_s_rsq_f32": ("D0.f32 = 32'F(1.0 / sqrt(64'F(S0.f32)))", "the text rounds the root before it divides"),
    "v_s_rsq_f16": ("D0.f16 = 16'F(1.0 / sqrt(64'F(S0.f16)))", "the text rounds the root before it divides"),
    "s_rndne_f32": ("D0.f32 = rint(S0.f32)", ROUNDS_TWICE),
    "s_rndne_f16": ("D0.f16 = rint(S0.f16)", ROUNDS_TWICE),
    "v_rndne_f32": ("D0.f32 = rint(S0.f32)", ROUNDS_TWICE),
    "v_rndne_f16": ("D0.f16 = rint(S0.f16)", ROUNDS_TWICE),
    "v_rndne_f64": ("D0.f64 = rint(S0.f64)", ROUNDS_TWICE),
    "v_frexp_exp_i32_f32": ("D0.i32 = frexp_exp(S0.f32)", FREXP),
    "v_frexp_exp_i32_f64": ("D0.i32 = frexp_exp(S0.f64)", FREXP),
    "v_frexp_exp_i16_f16": ("D0.i16 = 16'I(frexp_exp(S0.f16))", FREXP),
    "v_fract_f32": ("D0.f32 = below_one(S0.f32 + -floor(S0.f32))", "a fraction is below 1; only Southern Islands returned 1 (LLVM hasFractBug)"),
    "v_fract_f64": ("D0.f64 = below_one(S0.f64 + -floor(S0.f64))", "a fraction is below 1; only Southern Islands returned 1 (LLVM hasFractBug)"),
    "v_fract_f16": ("D0.f16 = below_one(S0.f16 + -floor(S0.f16))", "a fraction is below 1; only Southern Islands returned 1 (LLVM hasFractBug)"),
    "s_cvt_f16_f32": ("D0.u32 = 32'U(f32_to_f16(S0.f32))", "the upper half of the scalar register is not mentioned; it is taken to be zero"),
    "v_cvt_off_f32_i4": ("D0.f32 = i32_to_f32(signext_from_bit(32'I(S0[3 : 0].u32), 4)) / 16.0F", "the text is a table in prose"),
    "v_mad_i64_i32": ("{ D1.u1, D0.u64 } = mad_i64(S0.i32, S1.i32, S2.i64)", "the text adds in 65 bits without saying how its operands are widened"),
    "v_mad_co_i64_i32": ("{ D1.u1, D0.u64 } = mad_i64(S0.i32, S1.i32, S2.i64)", "the text adds in 65 bits without saying how its operands are widened"),
}
DIV = "refined quotients would be wrong where the text scales in the direction that overflows, or not at all"
# Tested against a plain second implementation in Rust instead, with the reason.
ELSEWHERE = {
    "v_div_scale_f32": DIV, "v_div_scale_f64": DIV, "v_div_fmas_f32": DIV, "v_div_fmas_f64": DIV,
    "v_div_fixup_f32": DIV, "v_div_fixup_f64": DIV,
    "v_fma_mix_f32": "the text reads modifiers by name", "v_fma_mixlo_f16": "the text reads modifiers by name",
    "v_fma_mixhi_f16": "the text reads modifiers by name",
    "v_dot4_i32_iu8": "the text reads modifiers by name", "v_dot8_i32_iu4": "the text reads modifiers by name",
}


def turn(quarter):
    def g(v):
        x = v.num()
        if not math.isfinite(x):
            return V_float(math.nan, v.size)
        r = (Fraction(x) + Fraction(quarter)) % 1
        if r > Fraction(1, 2):
            r -= 1
        if abs(r) > Fraction(1, 4):
            r = (Fraction(1, 2) if r > 0 else Fraction(-1, 2)) - r
        return V_float(math.sin(float(r) * 2 * math.pi), v.size)
    return g


FUNCTIONS["turn_sin"] = turn(0)
FUNCTIONS["turn_cos"] = turn(Fraction(1, 4))
FUNCTIONS["mad_i64"] = lambda a, b, c: V(a.num() * b.num() + c.num(), 65, "b")
FUNCTIONS["sat8"] = lambda v: V(max(0, min(255, v.num())), 8, "u")
FUNCTIONS["f32_to_u8"] = lambda v: to_int(v, 0, 255, 8, "u")


def normalised(low, scale, kind):
    def g(v):
        x = v.num()
        if math.isnan(x):
            return V(0, 16, kind)
        return V(round(Fraction(min(max(x, low), 1.0)) * scale), 16, kind)
    return g


for f in ("f16", "f32"):
    FUNCTIONS[f"{f}_to_snorm"] = normalised(-1.0, 32767, "i")
    FUNCTIONS[f"{f}_to_unorm"] = normalised(0.0, 65535, "u")


# ---- evaluation ------------------------------------------------------------------------------------

def canonical(bits, dst, name):
    """NaN results have no documented payload."""
    def one(value, size):
        m = mantissa_bits(size)
        inf = ((1 << (size - 1 - m)) - 1) << m
        return inf | 1 << (m - 1) if value & ((1 << (size - 1)) - 1) > inf else value
    if dst == "s":
        return one(bits & 0xFFFF, 16) if name.endswith("f16") else one(bits, 32)
    if dst == "h":
        return bits & 0xFFFF0000 | one(bits & 0xFFFF, 16)
    if dst == "p":
        return one(bits >> 16 & 0xFFFF, 16) << 16 | one(bits & 0xFFFF, 16)
    return one(bits, {"f": 32, "d": 64}[dst]) if dst in ("f", "d") else bits


def atomic_text(text):
    text = re.sub(r"addr = Calc\w+\([^)]*\);?", "", text)
    text = re.sub(r"MEM\[\w+\]", "CELL", text).replace("RETURN_DATA", "D0")
    return re.sub(r"\bDATA\b", "S1", re.sub(r"\bDATA2\b", "S2", text))


def evaluate(table, text, shape, case, atomic):
    a, b, c, old, scc, vcc = case
    env = {
        "S0": V(a, 64, "b"), "S1": V(b, 64, "b"), "S2": V(c, 64, "b"), "D0": V(0 if atomic else old, 64, "b"), "D1": V(0, 64, "b"),
        "SCC": V(scc, 1, "u"), "VCC": V(vcc, 64, "b"), "EXEC": V(1, 64, "b"), "SIMM16": V(b if shape == "=bk" else a, 16, "b"),
        "SIMM32": V(c, 32, "b"), "CELL": V(old, 64, "b"), "OPSEL": V(0, 4, "b"),
    }
    Run(text, env, table).block(set(), True)
    return env


def result(table, text, fmt, name, shape, op, case):
    """Destination, mask (or memory cell), SCC, EXEC after one set."""
    atomic = op in ATOMICS
    env = evaluate(table, text, shape, case, atomic)
    dst = shape.split("=")[0]
    wide = (1 << (64 if dst in ("q", "j", "d") else 32)) - 1
    d = mask = 0
    if fmt == "Vopc":
        mask = (env["EXEC"].bits if "cmpx" in name else env["D0"].bits) & 1
    elif dst:
        d = canonical(env["D0"].bits & wide, dst, name)
        if fmt.startswith("Sop") and dst == "h":
            d &= 0xFFFF
    if fmt == "Vop3sd" or "_co_ci_" in name:
        mask = (env["VCC"].bits if "VCC" in env.get("_written", ()) else env["D1"].bits) & 1
    if atomic:
        cell = env["CELL"]
        kind = {"f": "f" if cell.size == 32 else "d"}.get(cell.kind, "p" if "pk_add_f16" in name else "b")
        size = 64 if name.endswith("64") else 32
        mask = canonical(cell.bits & ((1 << size) - 1), kind, name)
        d = env["D0"].bits & ((1 << size) - 1) if dst else 0
    return d, mask, env["SCC"].bits & 1, env["EXEC"].bits & 0xFFFFFFFF


def tiny(bits, name):
    """Denormals, which the transcendental instructions on singles flush."""
    return name.endswith("f32") and bits & 0x7F800000 == 0 and bits << 1 & 0xFFFFFFFF != 0


def entry(job):
    module, sets, fmt, name, shape, op = job
    table = Table(module)
    dst, inputs = shape.split("=")
    types = list(inputs) + [""] * (3 - len(inputs))
    atomic = op in ATOMICS
    if atomic:
        dst_type = "q" if name.endswith("64") else "b"
        dst_type = {"f32": "f", "f64": "d"}.get(name[-3:], dst_type)
        types = ["", *[t and (dst_type if t in ("b", "q") and "cmpswap" not in name else t) for t in types[1:]]]
    text = EXTRA[name][0] if name in EXTRA else table.code.get(name)
    if text is None:
        return name, sets, None, "no text"
    if atomic:
        text = atomic_text(text)
    near = NEAR.search(name) is not None
    source, lines, stream, tries = Source(name), [], bytearray(), 0
    try:
        while tries < SETS:
            tries += 1
            case = operands(source, types, dst_type if atomic else dst)
            if near and (tiny(case[0], name) or (("sin" in name or "cos" in name) and abs(unpack(case[0] & 0xFFFF if name.endswith("16") else case[0], 16 if name.endswith("16") else 32)) > 200)):
                continue
            d, mask, scc, execs = result(table, text, fmt, name, shape, op, case)
            if near and tiny(d, name):
                continue
            if len(lines) < LITERAL:
                lines.append(" ".join([f"{v:x}" for v in case] + ["="] + [f"{v:x}" for v in (d, mask, scc, execs)]))
            elif near:
                break
            stream += struct.pack("<QQBI", d, mask, scc, execs)
    except (SyntaxError, TypeError, KeyError, AttributeError, ValueError, IndexError, OverflowError) as e:
        return name, sets, None, f"{type(e).__name__}: {e}"
    digest = "near" if near else blake3.blake3(bytes(stream)).hexdigest()[:32]
    return name, sets, [f"[{name}] {','.join(map(str, sets))} {digest}", *lines], None


def jobs():
    tables = {11: Table("rdna3"), 12: Table("rdna4")}
    found = {}
    for sets, fmt, name, shape, op in rows():
        if op == "Refused" or SKIP.match(name) or name in ELSEWHERE or "4" in shape.split("=")[1]:
            continue
        for s in sets:
            found.setdefault(name, {})[s] = (fmt, shape, op)
    for name, by_set in found.items():
        texts = {s: EXTRA[name][0] if name in EXTRA else tables[s].code.get(name) for s in by_set}
        if len(by_set) == 2 and texts[11] == texts[12]:
            yield ("rdna3", (11, 12), by_set[11][0], name, *by_set[11][1:])
        else:
            for s, (fmt, shape, op) in by_set.items():
                yield ("rdna3" if s == 11 else "rdna4", (s,), fmt, name, shape, op)


def main():
    from multiprocessing import Pool
    only = sys.argv[1:]
    todo = [j for j in jobs() if not only or j[3] in only]
    with Pool(2) as pool:
        done = pool.map(entry, todo, chunksize=8)
    failed = [f"{name} {sets} ({why})" for name, sets, lines, why in done if lines is None]
    print(len(todo), "entries; not evaluated:", *failed, sep="\n  ")
    entries = {11: {}, 12: {}}
    for first, file in ((11, "gfx11.txt"), (12, "gfx12.txt")):
        if only:
            for text in (HERE / file).read_text().split("\n[")[1:]:
                entries[first][text.split("]")[0]] = ("[" + text).rstrip("\n").split("\n")
    for name in {name for name, *_ in done}:
        entries[11].pop(name, None)
        entries[12].pop(name, None)
    for name, sets, lines, _ in done:
        if lines:
            entries[sets[0]][name] = lines
    names = {*entries[11], *entries[12]}
    order = {job[3]: k for k, job in enumerate(jobs())}
    for first, file in ((11, "gfx11.txt"), (12, "gfx12.txt")):
        out = ["# Generated by generate.py from AMD's pseudocode; do not edit."]
        if first == 11:
            out += [f"! {name}: {EXTRA[name][1]}" for name in sorted(EXTRA) if name in names]
            out += [f"- {name}: {why}" for name, why in sorted(ELSEWHERE.items())]
        for name in sorted(entries[first], key=order.get):
            out += entries[first][name]
        (HERE / file).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
