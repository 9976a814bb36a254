"""001 FLAME Automatic Differentiation, "Advanced Features": Gradient Clipping."""

from expect import close

import weft as wf
from weft.optim import GradientClipper


def main():
    x = wf.tensor([3.0, 4.0], requires_grad=True)
    grads = x.mul_scalar(1e6).mul(x).sum().backward()

    clipper = GradientClipper(1.0)  # max norm = 1.0
    clipped_grads = clipper.clip_grads(grads)
    close(clipped_grads[x], [0.6, 0.8])
    assert clipper.total_norm is not None
    close(wf.tensor(clipper.total_norm), 1e7)

    small = x.mul_scalar(0.01).sum().backward()
    assert clipper.clip_grads(small)[x].tolist() == [wf.tensor(0.01).item()] * 2


if __name__ == "__main__":
    main()
