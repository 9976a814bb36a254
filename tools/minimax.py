"""The polynomials of weft.compiler.emit: minimax fits by Remez' exchange, in 50 digits.

python tools/minimax.py            all of them
python tools/minimax.py exp64      one, with its error
"""

import sys

import mpmath as mp

mp.mp.dps = 50
TINY = mp.mpf(10) ** -10


def minimax(f, count, low, high, weight=lambda x: 1, rounds=12):
    """c₀ + c₁x + … with the least maximum of weight·|f − c| on [low, high], and that maximum."""
    low, high, n = mp.mpf(low), mp.mpf(high), max(40 * count, 400)
    xs = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + 0.5) / n) for i in range(n)]
    wanted, weights = [f(x) for x in xs], [weight(x) for x in xs]
    picks = [int((i + 0.5) * n / (count + 1)) for i in range(count + 1)]
    best = ([], mp.inf)
    for _ in range(rounds):
        rows = [[weights[k] * xs[k] ** p for p in range(count)] for k in picks]
        rows = [[*row, (-1) ** i] for i, row in enumerate(rows)]
        solved = mp.lu_solve(mp.matrix(rows), mp.matrix([weights[k] * wanted[k] for k in picks]))
        c = [solved[p] for p in range(count)]
        errors = [
            w * (y - mp.polyval(c[::-1], x)) for w, y, x in zip(weights, wanted, xs, strict=True)
        ]
        best = min(best, (c, max(map(abs, errors))), key=lambda found: found[1])
        picks = _extremes(errors, count + 1)
        if len(picks) < count + 1:
            break
    return best


def _extremes(errors, count):
    """Where the error is largest between two changes of its sign."""
    groups = [[0]]
    for k in range(1, len(errors)):
        same = (errors[k] > 0) == (errors[k - 1] > 0)
        groups[-1].append(k) if same else groups.append([k])
    tops = [max(g, key=lambda k: abs(errors[k])) for g in groups]
    while len(tops) > count:
        tops.pop(0 if abs(errors[tops[0]]) < abs(errors[tops[-1]]) else -1)
    return tops


def odd(f):
    """(f(t) − t)/t³ as a function of t²."""
    return lambda z: (f(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3


def scaled_tail(k):
    """e^(a²)·erfc(a)·(a + k) as a function of q = 1 − 2k/(a + k)."""

    def of(q):
        a = 2 * k / (1 - q) - k
        return mp.exp(a * a) * mp.erfc(a) * (a + k)

    return of


def tail(k, count, end):
    f = scaled_tail(mp.mpf(k))
    return f, count, -1, 1 - 2 * mp.mpf(k) / (end + k), lambda q: 1 / f(q)


HALF_LN2, ROOT = mp.log(2) / 2 * mp.mpf("1.01"), mp.sqrt(2)
S = ((ROOT - 1) / (ROOT + 1) * mp.mpf("1.001")) ** 2
EIGHTH = ((ROOT - 1) * mp.mpf("1.0001")) ** 2
TURN = mp.mpf("0.8") ** 2


def growth(r):
    return (mp.expm1(r) - r) / r**2 if r else mp.mpf(1) / 2


def doubling(r):
    return (mp.mpf(2) ** r - 1) / r if r else mp.log(2)


def logarithm(f):
    return (mp.log1p(f) - f + f * f / 2) / f**3 if f else mp.mpf(1) / 3


def erf(z):
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z)


def cosine(z):
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def area(z):
    return odd(lambda s: 2 * mp.atanh(s) - s)(z)


def square(r):
    return r * r


FITS = {
    "exp32": (growth, 5, -HALF_LN2, HALF_LN2, square),
    "exp64": (growth, 11, -HALF_LN2, HALF_LN2, square),
    "exp2_32": (doubling, 6, -0.501, 0.501, abs),
    "exp2_64": (doubling, 12, -0.501, 0.501, abs),
    "log32": (logarithm, 8, -0.2501, 0.5001, lambda f: f**3 / mp.log1p(f) if f else 0),
    "log64": (area, 8, TINY, S, lambda z: z),
    "sinh32": (odd(mp.sinh), 4, TINY, 1, lambda z: z),
    "sinh64": (odd(mp.sinh), 8, TINY, 1, lambda z: z),
    "sin32": (odd(mp.sin), 4, TINY, TURN, lambda z: z),
    "sin64": (odd(mp.sin), 7, TINY, TURN, lambda z: z),
    "cos32": (cosine, 3, TINY, TURN, square),
    "cos64": (cosine, 6, TINY, TURN, square),
    "tan32": (odd(mp.tan), 7, TINY, TURN, lambda z: z),
    "tan64": (odd(mp.tan), 15, TINY, TURN, lambda z: z),
    "atan32": (odd(mp.atan), 5, TINY, EIGHTH, lambda z: z),
    "atan64": (odd(mp.atan), 11, TINY, EIGHTH, lambda z: z),
    "asin32": (odd(mp.asin), 5, TINY, 0.2501, lambda z: z),
    "asin64": (odd(mp.asin), 12, TINY, 0.2501, lambda z: z),
    "erf32": (erf, 7, TINY, 1, lambda z: 1 / erf(z)),
    "erf64": (erf, 13, TINY, 1, lambda z: 1 / erf(z)),
    "erfcx32": tail(3, 10, mp.mpf("10.2")),
    "erfcx64": tail(4, 23, mp.mpf("27.5")),
    "log_erfc32": (lambda a: mp.log(mp.erfc(a)), 7, 1, 4, mp.erfc),
    "cbrt": (lambda r: r ** (-mp.mpf(1) / 3), 5, 0.857, 1.158, lambda r: r ** (mp.mpf(1) / 3)),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        coefficients, error = minimax(*FITS[name])
        print(f"{name}: error {mp.nstr(error, 3)}")
        print("   ", ", ".join(repr(float(c)) for c in coefficients))
