"""The numbers by which fusion weighs one form of a program against another."""

from math import inf

from ..core.record import record


@record
class Limits:
    """The limits of a machine; the defaults are those of a processor with some threads.

    equations          the most equations of a kernel: compilers take longer than its loops grow
    number_equations   the same for kernels of single numbers, which are straight-line code
    few_lines          so few lines are not enough to share among threads: then no more than
    few_lines_elements elements are swept over twice by one kernel
    split_lines        fewer lines than this are folded in two stages, if they are long enough
    folded_arrays      the most whole arrays that a kernel with folds reads: all of them are kept
                       until it runs
    stored_columns     columns up to this length are folded while their array is stored; longer
                       ones would be walked with strides that are too wide
    repeated_elements  from so many elements on, rows that are not light, and vary along the last
                       axis, are stored rather than computed again
    heavy_repeats      the most rows of a kernel or of a chain that are not light and are computed
                       again nevertheless

    full_fold_elements elements from which on a fold of everything has two stages
    piece_elements     the least elements of a piece
    fewest_pieces      the least number of pieces
    even_pieces        the least number of pieces that is chosen because it divides the length
    usual_pieces       the most pieces of other lengths
    most_pieces        the most pieces

    long_columns       columns that are longer than this are folded by pieces of rows,
    column_elements    from so many elements on
    piece_rows         (rows, rows of a piece), in falling order: for columns that are longer
    pieces_together    (columns, pieces that are computed at the same time), in falling order: for
                       rows that are not shorter; the number of pieces is a multiple, or less
    narrow_rows        rows that are shorter are joined, if they lie one after the other,
    joined_elements    up to this length
    joins_beside       whether a kernel with few lines also computes what is of no other sweep
    joins_forward      whether folds of columns are fused with kernels behind them, too
    aligned_parts      parts of arrays are computed in their places, if those are multiples of so
                       many bytes; 0: they are copied there

    arena_bytes        bytes from which on a lower peak of memory is sought, in
    remat_rounds       rounds at most, if a round saves
    remat_share        of the peak
    remat_bytes        the least bytes of a value that is computed again
    remat_rows         the most rows of a chain that computes a value again
    remat_time         the most share of time that a round takes for each share that it saves; only
                       values are computed again then that are no smaller than what they need
    source_worth       a source is kept if that frees so many times its bytes
    """

    equations: int = 96
    number_equations: int = 4096
    few_lines: int = 16
    few_lines_elements: int = 1 << 15
    split_lines: int = 0
    folded_arrays: int = 8
    stored_columns: int = 64
    repeated_elements: int = 1 << 10
    heavy_repeats: int = 0

    full_fold_elements: int = 1 << 15
    piece_elements: int = 1 << 8
    fewest_pieces: int = 16
    even_pieces: int = 16
    usual_pieces: int = 1 << 8
    most_pieces: int = 1 << 10

    long_columns: int = 64
    column_elements: int = 1 << 15
    piece_rows: tuple[tuple[int, int], ...] = ((1 << 10, 64), (0, 16))
    pieces_together: tuple[tuple[int, int], ...] = ()
    narrow_rows: int = 32
    joined_elements: int = 1 << 10
    joins_beside: bool = False
    joins_forward: bool = False
    aligned_parts: int = 0

    arena_bytes: int = 1 << 20
    remat_rounds: int = 4
    remat_share: float = 0.01
    remat_bytes: int = 1 << 14
    remat_rows: int = 8
    remat_time: float = inf
    source_worth: float = 1.5

    def rows_of_piece(self, rows: int, columns: int) -> int:
        """The rows of a piece of columns, `rows` long."""
        most = next(piece for more, piece in self.piece_rows if rows > more)
        together = next((n for least, n in self.pieces_together if columns >= least), 0)
        if not together:
            return most
        rounds = -(-rows // (most * together))
        return max(-(-rows // (rounds * together)), self.piece_rows[-1][1])


LIMITS = Limits()
