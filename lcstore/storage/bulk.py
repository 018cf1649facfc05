"""Deleting many objects of a bucket at once, and knowing that all of them are gone.

Not by `rm` of a filesystem, which takes ``[1]`` in a path for a pattern. That of s3fs passes over what S3
could not delete, that of adlfs over any failure behind an object that is absent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

#: Objects of a request to S3, and objects that are deleted side by side elsewhere.
_MOST_OF_S3: Final = 1000
_TOGETHER: Final = 64


async def delete_s3(fs: Any, paths: Sequence[str]) -> bool:
    """Delete objects by as few requests as can be; return whether S3 says of none that it could not."""
    fs.invalidate_cache()
    for at in range(0, len(paths), _MOST_OF_S3):
        split = [fs.split_path(path) for path in paths[at : at + _MOST_OF_S3]]
        keys = {"Objects": [{"Key": key} for _, key, _ in split], "Quiet": True}
        answer = await fs._call_s3("delete_objects", Bucket=split[0][0], Delete=keys)
        if answer.get("Errors"):
            return False
    return True


async def delete_each(fs: Any, paths: Sequence[str]) -> None:
    """Delete objects of an asynchronous filesystem; a failure is raised once those beside it have ended."""
    for at in range(0, len(paths), _TOGETHER):
        some = (fs._rm_file(path) for path in paths[at : at + _TOGETHER])
        for failure in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(failure, BaseException) and not isinstance(failure, FileNotFoundError):
                raise failure
