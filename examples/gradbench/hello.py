"""A first greeting: x² and its derivative 2x.

Size: the number itself. GradBench starts at 1 and hands each result on to the other function, four
times: 1, 2, 4, 8, 64, 128, 16384, 32768.
Source: the eval `hello` of github.com/gradbench/gradbench.
"""

import weft as wf

SIZES = (1.0,)
ROUNDS = 4


def inputs(size=SIZES[0]):
    """The number to begin with."""
    return (wf.asarray(size, dtype="float64"),)


def square(x):
    """x²."""
    return x * x


double = wf.grad(square)

FUNCTIONS = {"square": square, "double": double}


def conversation(x):
    """What the two functions answer in turn."""
    answers = []
    for _ in range(ROUNDS):
        for function in (square, double):
            x = function(x)
            answers.append(x.item())
    return answers


def main():
    print(conversation(*inputs()))


if __name__ == "__main__":
    main()
