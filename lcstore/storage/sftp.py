"""Objects over SFTP by paramiko, which waits for each piece of a file unless it is told not to."""

from __future__ import annotations

import io

from lcstore.storage.remote import FsspecBackend


class SftpBackend(FsspecBackend):
    """Objects below a folder of fsspec's own SFTP filesystem."""

    def _write(self, path: str, body: bytes) -> None:
        self._fs.ftp.putfo(io.BytesIO(body), path)

    def _rename(self, temporary: str, path: str) -> None:
        # Refuses a name that is taken. What fsspec uses is an extension, which not all servers have.
        self._fs.ftp.rename(temporary, path)

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        with self._fs.ftp.open(path, "rb") as file:
            size = file.stat().st_size
            last = size if end is None else min(end, size)
            if last <= start:
                return b""
            if start == 0:
                file.prefetch(last)
            else:
                file.seek(start)
            return bytes(file.read(last - start))
