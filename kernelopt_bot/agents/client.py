"""The one file that talks to a language model: the `openai` package against any OpenAI-compatible server.

The package's own repetitions are off: each attempt has to be covered by the budget, and what one thread learns (a
server's wish for silence, a parameter that it does not know, a key that it refuses) holds for all of them.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import openai

from kernelopt_bot.agents import replies, requests
from kernelopt_bot.agents.brain import Role
from kernelopt_bot.agents.dialect import Dialect
from kernelopt_bot.agents.messages import FATAL, PASSING, Answer, ModelError, Request, Tokens
from kernelopt_bot.agents.patience import Turnstile, retry_after, wait_s
from kernelopt_bot.agents.replies import Reply
from kernelopt_bot.agents.settings import Agents, RoleModel
from kernelopt_bot.agents.spend import Cost, Ledger
from kernelopt_bot.errors import InputError
from kernelopt_bot.process import redact, take_secret

CONNECT_S = 10.0
WRITE_S = 30.0


@dataclass
class _Account:
    """What one answer took so far."""

    began: float
    cost: Cost = field(default_factory=Cost)
    faults: list[str] = field(default_factory=list)


class Client:
    """Asks a model; safe for several threads. `close` ends what is under way.

    Raises InputError where the configuration names no model, or a key that is not there.
    """

    def __init__(self, settings: Agents, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], object] | None = None,
                 uniform: Callable[[float, float], float] = random.uniform) -> None:
        if not settings.model:
            raise InputError("no model is configured", where="agents.model in .kernelopt.yml",
                             fix="name one, or let the built-in brains work alone")
        key = take_secret(settings.key_variable) if settings.key_variable else "none"
        if not key:
            raise InputError("the model's key is not set", where=f"environment variable {settings.key_variable}",
                             fix="set it, or set agents.key_variable to \"\" for a server that wants none")
        self._settings, self._ledger, self._clock, self._uniform = settings, ledger, clock, uniform
        self._ending = threading.Event()
        self._gate = Turnstile(settings.parallel, clock=clock, sleep=sleep or self._ending.wait)
        self._lock = threading.Lock()
        self._dialects: dict[str, Dialect] = {}
        self._first_dialect = Dialect(form="strict" if settings.structured == "auto" else settings.structured)
        self._unusable: ModelError | None = None
        # No redirects: prompts go to the configured server and to no other.
        transport = getattr(openai, "DefaultHttpx2Client", openai.DefaultHttpxClient)(follow_redirects=False)
        self._api = openai.OpenAI(api_key=key, base_url=settings.base_url, max_retries=0, http_client=transport)

    @property
    def unusable(self) -> str:
        """Why no further request can succeed, in words; '' as long as one may."""
        return self._unusable.what if self._unusable is not None else ""

    def close(self) -> None:
        self._ending.set()
        self._api.close()

    def ask(self, role: Role, request: Request) -> Answer:
        """The model's answer, faults that pass by repetition excepted.

        Raises ModelError, Spent where the budget does not cover the (next) call, Unavailable where the ledger cannot
        be written.
        """
        account = _Account(self._clock())
        while True:
            dialect = self._dialect(role)
            try:
                reply = self._covered(role, request, dialect, account)
            except ModelError as error:
                account.faults.append(error.kind)
                error.calls, error.seconds = account.cost.calls, self._clock() - account.began
                error.usd = self._usd(role, account)
                if not self._to_be_repeated(error, role, dialect, account):
                    raise
                continue
            return Answer(
                text=reply.text, model=reply.model or self._settings.of(role).model, usage=reply.usage,
                usd=self._usd(role, account), seconds=self._clock() - account.began,
                calls=account.cost.calls, id=reply.id, faults=tuple(account.faults), dialect=dialect.to_json())

    def _usd(self, role: Role, account: _Account) -> float | None:
        priced = any(p.model == self._settings.of(role).model for p in self._settings.prices)
        return account.cost.usd if priced else None

    def _dialect(self, role: Role) -> Dialect:
        with self._lock:
            return self._dialects.get(self._settings.of(role).model, self._first_dialect)

    def _to_be_repeated(self, error: ModelError, role: Role, dialect: Dialect, account: _Account) -> bool:
        """Whether the request is sent again; waits where it has to be waited for."""
        if error.kind in FATAL:
            self._unusable = error
        if isinstance(error, _Misunderstood):
            lesser = dialect.without(error.said, fixed_form=self._settings.structured != "auto", sent=error.sent)
            if lesser is None:
                return False
            with self._lock:
                self._dialects[self._settings.of(role).model] = lesser
            return True
        attempt = sum(kind in PASSING for kind in account.faults) - 1
        often = 1 if error.kind == "empty" else self._settings.retries
        if error.kind not in PASSING or attempt >= min(often, self._settings.retries) or self._ending.is_set():
            return False
        if error.retry_after_s is not None:
            if error.retry_after_s > self._settings.retry_after_s:
                return False
            self._gate.silence(error.retry_after_s)
        self._gate.sleep(wait_s(attempt, error.retry_after_s, self._uniform))
        return not self._ending.is_set()

    def _covered(self, role: Role, request: Request, dialect: Dialect, account: _Account) -> Reply:
        want = self._settings.of(role)
        assert want.max_output_tokens is not None
        with self._gate.passed():
            if self._unusable is not None:
                raise ModelError(self._unusable.kind, self._unusable.what)
            if self._ending.is_set():
                raise ModelError("unreachable", "the run is ending")
            reservation = self._ledger.reserve(
                role, want.model, prompt_bytes=requests.size(request), max_output=want.max_output_tokens,
                seconds=self._settings.timeout_s)
            usage: Tokens | None = None
            free = False
            try:
                reply = self._send(want, request, dialect, reservation.seconds)
                usage = reply.usage
                replies.check(reply)
            except ModelError as error:
                usage, free = usage or error.usage, error.free
                raise
            finally:
                account.cost += self._ledger.settle(reservation, usage, free=free)
        return reply

    def _send(self, want: RoleModel, request: Request, dialect: Dialect, seconds: float) -> Reply:
        chat = self._settings.api == "chat"
        body = (requests.chat if chat else requests.responses)(want, request, dialect)
        streamed = self._settings.stream
        if streamed and chat and dialect.usage:
            body["stream_options"] = {"include_usage": True}
        silence = min(seconds, self._settings.idle_s) if streamed else seconds
        limits = openai.Timeout(
            connect=min(seconds, CONNECT_S), read=silence, write=min(seconds, WRITE_S), pool=seconds)
        create: Any = self._api.chat.completions.create if chat else self._api.responses.create
        reader = replies.Reader(chat)
        try:
            answer = create(**body, stream=streamed, timeout=limits)
            if streamed:
                with _ended_after(answer, seconds) as late:
                    try:
                        for event in answer:
                            reader.take(event)
                    except (openai.APIConnectionError, openai.APIError, RuntimeError, OSError, ValueError):
                        if late.is_set():
                            raise ModelError("timed_out", f"no whole answer within {seconds:g} s") from None
                        raise
                return reader.done()
            return replies.whole(answer, chat)
        except openai.APITimeoutError as error:
            what = "stalled" if reader.begun else "sent nothing"
            raise ModelError("timed_out", f"the server {what} for {silence:g} s", text=reader.text,
                             unsent=_cause(error).startswith("Connect")) from None
        except openai.APIConnectionError as error:
            if reader.begun:
                raise ModelError("cut", "the connection broke within the answer", text=reader.text) from None
            cause = _cause(error)
            raise ModelError("unreachable", f"the server cannot be reached ({cause})",
                             unsent=cause.startswith("Connect")) from None
        except openai.APIStatusError as error:
            raise _refused(error, body) from None
        except openai.APIError as error:
            raise ModelError("server", f"the server broke off: {_words(error.message)}", text=reader.text) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError, OSError, RuntimeError) as error:
            raise ModelError("malformed", f"the answer is not of the interface's form ({type(error).__name__})",
                             text=reader.text) from None


class _Misunderstood(ModelError):
    """A 400 or 422, which may be about a parameter that the server does not know."""

    said = ""
    sent: dict[str, Any]


@contextlib.contextmanager
def _ended_after(stream: Any, seconds: float) -> Iterator[threading.Event]:
    """Closes a stream that is still being read after `seconds`: one that only ever sends signs of life has no other
    end. The event is set if it was."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(Exception):
            stream.close()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        with contextlib.suppress(Exception):
            stream.close()


_TOO_LONG = ("context length", "context_length", "maximum context", "context window", "context size", "too many tokens",
             "prompt is too long", "input is too long", "reduce the length")
_MAYBE_MADE = (408, 409, 504, 524)
"""Statuses of proxies that lost patience: the answer may have been made, and billed. Other errors are not billed."""
_NO_QUOTA = ("insufficient_quota", "exceeded your current quota", "billing", "credit balance")


def _refused(error: openai.APIStatusError, sent: dict[str, Any]) -> ModelError:
    """What a status means. Raises nothing."""
    status, words = error.status_code, _words(error.message)
    said = " ".join(str(x) for x in (error.message, error.code, error.param) if x).lower()
    what = f"the server answered {status}: {words}"
    asked = retry_after({k.lower(): v for k, v in error.response.headers.items()}, time.time())
    if status == 402 or (status in (403, 429) and any(w in said for w in _NO_QUOTA)):
        return ModelError("no_quota", what)
    if status == 429:
        return ModelError("rate_limited", what, retry_after_s=asked)
    if status in (401, 403):
        return ModelError("denied", what)
    if status == 404:
        return ModelError("no_model", what)
    if status == 413 or (status in (400, 422) and any(w in said for w in _TOO_LONG)):
        return ModelError("too_long", what)
    if status in (400, 422):
        misunderstood = _Misunderstood("rejected", what)
        misunderstood.said, misunderstood.sent = said, sent
        return misunderstood
    if status in (408, 409, 425) or status >= 500:
        return ModelError("server", what, retry_after_s=asked, unsent=status not in _MAYBE_MADE)
    return ModelError("rejected", what)


def _cause(error: Exception) -> str:
    """The transport's name for it: `ConnectError` and `ConnectTimeout` come before anything is sent."""
    return type(error.__cause__ or error).__name__


def _words(text: object) -> str:
    return redact(" ".join(str(text).split()))[:300]
