"""A target that is on trial: after a question without an answer nothing more is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from lcstore.errors import LcstoreError, StorageError
from lcstore.storage.backend import Backend
from lcstore.storage.patient import Patience, PatientBackend, lacks_credentials

R = TypeVar("R")

#: How long one question of a trial may take.
PATIENCE: Final = Patience(20.0, 5)
_LOGIN: Final = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
_REGION: Final = (
    "the bucket is in another region: set AWS_DEFAULT_REGION, or "
    """-o client_kwargs='{"region_name": "..."}'"""
)
#: What to do where a service refuses whoever asks, by what it says.
_CURES: Final = {
    "InvalidAccessKeyId": "the key is not known there: set AWS_ACCESS_KEY_ID, or -o key=..., to one of this "
    "service (AWS_ENDPOINT_URL) and account",
    "SignatureDoesNotMatch": "the secret is not that of the key: set AWS_SECRET_ACCESS_KEY, or -o secret=...",
    "ExpiredToken": f"the session has expired: get new credentials, and set {_LOGIN}",
    "TokenRefreshRequired": f"the session has expired: get new credentials, and set {_LOGIN}",
    "InvalidToken": f"the session is not known there: set {_LOGIN}, of one session all three",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "PermanentRedirect": _REGION,
    "301": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
}


class AskedBackend(PatientBackend):
    """A target that is asked with the patience of a trial.

    Parameters
    ----------
    inner
        The target.
    silence
        Says what had no answer, once something had none. Then nothing more is asked by any that share it:
        not even to clean up.
    """

    def __init__(self, inner: Backend, silence: list[str]) -> None:
        super().__init__(inner, PATIENCE)
        self._silence = silence

    def ask(
        self,
        verb: str,
        what: str,
        call: Callable[[], R],
        overdue: type[StorageError] = StorageError,
        *,
        more: float = 0.0,
    ) -> R:
        """Return what a call returns. What a trial carries is little: it has no time more."""
        if self._silence:
            raise StorageError(f"not asked to {verb}", key=what)
        began = time.monotonic()
        try:
            return super().ask(verb, what, call, overdue)
        except StorageError as error:
            if error.gave_up and cure_of(error) is None:
                seconds = time.monotonic() - began
                self._silence.append(f"could not {verb} {what} in {seconds:.0f} s: {_reason(error)}")
            raise


def on_trial(backend: Backend, silence: list[str]) -> Backend:
    """Return a backend that asks nothing more once there is silence, where a network is in between."""
    return AskedBackend(backend, silence) if getattr(backend, "remote", False) else backend


def cure_of(failure: LcstoreError) -> str | None:
    """Return what to do where a service refuses whoever asks; None where it is not known to."""
    if isinstance(failure, StorageError) and lacks_credentials(failure):
        return "give them by -o, or as the target's own tools take them"
    error: BaseException | None = failure
    while error is not None:
        said = getattr(error, "response", None)
        about = said.get("Error") if isinstance(said, dict) else None
        if isinstance(about, dict) and about.get("Code") in _CURES:
            return _CURES[about["Code"]]
        error = error.__cause__
    return None


def _reason(error: StorageError) -> str:
    silent = isinstance(error.__cause__, TimeoutError)
    return "no answer" if silent else error.message.partition(": could not ")[2].partition(": ")[2]
