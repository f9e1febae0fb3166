"""An approver whose answers are fixed beforehand."""

from collections.abc import Callable, Mapping
from typing import Any

from deputy_mcp._runtime.approval import ApprovalRequest, Approve, Reject

Answer = bool | Approve | Reject
Rule = Callable[[ApprovalRequest], Answer]


class FixedApprover:
    """Approves or rejects by rule, at once, and keeps what it was asked.

    `rule`: `True` approves everything, `False` rejects everything; an `Approve` or `Reject` is given as it is; a
    callable (sync) gives one of these for each request. An exception in it is the crash of an approver.
    """

    # Mutable state: the requests so far.
    def __init__(self, rule: Answer | Rule = True) -> None:  # noqa: FBT002 # `FixedApprover(False)` is how it reads
        self.requests: list[ApprovalRequest] = []
        """What it was asked, oldest first."""
        self._rule = rule

    async def __call__(self, request: ApprovalRequest) -> Approve | Reject:
        self.requests.append(request)
        answer = self._rule(request) if callable(self._rule) else self._rule
        if isinstance(answer, bool):
            return Approve() if answer else Reject("rejected by a FixedApprover")

        return answer

    @property
    def arguments(self) -> list[Mapping[str, Any]]:
        """The arguments of each request."""
        return [request.arguments for request in self.requests]

    def __repr__(self) -> str:
        return f"<FixedApprover, asked {len(self.requests)} times>"
