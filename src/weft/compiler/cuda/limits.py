"""The limits of fusion for a GPU of some hundred multiprocessors, with fast memory.

A launch costs about 2 µs, and 4.8 TB/s of memory beside 67 Tflop/s leave some fifty instructions
for each number that is read: a row is computed again rather than stored. Every multiprocessor needs
two blocks at least, so that one computes while the other waits for memory.
"""

from ..limits import Limits

PROCESSORS = 132
# Blocks that fill all multiprocessors twice over, and as many pieces as a second stage folds fast.
BLOCKS, PIECES = 2 * PROCESSORS, 4 * PROCESSORS

GPU_LIMITS = Limits(
    equations=192,
    number_equations=512,  # one thread computes them, each waiting for the one before
    few_lines=PROCESSORS,
    few_lines_elements=1 << 17,
    split_lines=PROCESSORS,
    repeated_elements=1 << 20,
    heavy_repeats=4,
    full_fold_elements=1 << 17,
    piece_elements=1 << 10,
    fewest_pieces=2,
    even_pieces=PROCESSORS,
    usual_pieces=PIECES,
    most_pieces=2 * PIECES,
    long_columns=128,
    # A block has a piece, and partial sums are at most an eighth of what is summed. All blocks that
    # fit run to their end together: two of a multiprocessor, or four where rows are short. Of many
    # rows (images and sizes) each has one long piece: the second stage reads columns of pieces.
    piece_rows=((1 << 14, 1 << 11), (1 << 12, 64), (0, 8)),
    pieces_together=((1 << 11, 2 * PROCESSORS), (0, 4 * PROCESSORS)),
    joins_forward=True,
    joins_beside=True,
    aligned_parts=16,  # what a thread loads at once
    arena_bytes=1 << 24,
    remat_bytes=1 << 20,
    remat_rows=16,
    remat_time=0.1,
)
