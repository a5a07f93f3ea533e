"""The pages, and the actions behind their forms; each module has those of one subject."""

from __future__ import annotations

from typing import Final

from oncelog.console.page import Action, LocalPage, Page, Work
from oncelog.console.pages.audit import AUDIT, AUDIT_REPORT, AUDIT_RUN, AUDIT_WORKS
from oncelog.console.pages.bulk_abort import BULK, BULK_ABORT
from oncelog.console.pages.explain import EXPLAIN
from oncelog.console.pages.groups import APPLY, GROUP, GROUPS, RESET
from oncelog.console.pages.message_search import SEARCH, TAIL
from oncelog.console.pages.messages import MESSAGE, MESSAGES
from oncelog.console.pages.metrics import METRICS
from oncelog.console.pages.mirrors import MIRRORS
from oncelog.console.pages.overview import OVERVIEW
from oncelog.console.pages.produce import PRODUCE, SEND, SHOW
from oncelog.console.pages.producers import PRODUCERS
from oncelog.console.pages.topic_changes import CHANGE, TOPIC_ACTIONS
from oncelog.console.pages.topics import TOPIC, TOPICS
from oncelog.console.pages.transactions import ABORT, TERMINATE, TRANSACTION, TRANSACTIONAL_ID, TRANSACTIONS

PAGES: Final[tuple[Page | LocalPage, ...]] = (
    OVERVIEW,
    TRANSACTIONS,
    EXPLAIN,
    GROUPS,
    TOPICS,
    MESSAGES,
    PRODUCERS,
    METRICS,
    MIRRORS,
    AUDIT,
    TRANSACTION,
    TRANSACTIONAL_ID,
    BULK,
    GROUP,
    RESET,
    TOPIC,
    CHANGE,
    MESSAGE,
    SEARCH,
    TAIL,
    PRODUCE,
    AUDIT_RUN,
    AUDIT_REPORT,
)
"""Those with a path of one part are in the navigation."""
ACTIONS: Final[tuple[Action, ...]] = (ABORT, BULK_ABORT, TERMINATE, APPLY, SHOW, SEND, *TOPIC_ACTIONS)
WORKS: Final[tuple[Work, ...]] = AUDIT_WORKS
