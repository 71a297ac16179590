"""Where a token or patch stands: bucket indices of OFA's relative position biases.

All of it depends only on the grid and the text length, never on pixels or token ids.
"""

import math

import torch
from torch import Tensor

FARTHEST_TOKEN = 1023
"""The distance that the last logarithmic bucket ends at, whatever the table's length (modeling_ofa.py)."""


def token_buckets(length: int, bucket_size: int) -> Tensor:
    """Rows of ``token_rel_pos_table`` for each (query, key) pair: INT64 [length, length].

    Distances up to half the bucket size have a row each, farther ones share logarithmic buckets
    (``make_token_bucket_position`` in ModelScope's modeling_ofa.py).
    """
    near = bucket_size // 2
    position = torch.arange(length)
    distance = position[:, None] - position[None, :]
    magnitude = distance.abs().clamp(min=1).double()
    scale = math.log(FARTHEST_TOKEN / near)
    far = (torch.ceil(torch.log(magnitude / near) / scale * (near - 1)) + near).long() * distance.sign()
    return torch.where(distance.abs() <= near, distance, far) + bucket_size - 1


def image_buckets(rows: int, columns: int, bucket_size: int) -> Tensor:
    """Rows of ``image_rel_pos_table`` for each (query, key) pair of patches: INT64 [rows*columns, rows*columns]."""
    patch = torch.arange(rows * columns)
    row, column = patch // columns, patch % columns
    row_step = row[:, None] - row[None, :] + bucket_size - 1
    column_step = column[:, None] - column[None, :] + bucket_size - 1
    return row_step * (2 * bucket_size - 1) + column_step


def image_position_ids(rows: int, columns: int, bucket_size: int) -> Tensor:
    """Rows of ``embed_image_positions`` for a grid, row-major: INT64 [rows*columns]. Row 0 is reserved."""
    return (torch.arange(rows)[:, None] * bucket_size + torch.arange(columns)[None, :] + 1).flatten()
