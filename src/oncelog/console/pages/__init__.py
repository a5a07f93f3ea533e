"""Registry of the console's pages and of the actions behind their forms.

The rule: a page's module is imported at its first request.
"""

from __future__ import annotations

from typing import Final

from oncelog.console.page import Action, LocalPage, Page, Work

IDS_PATIENCE_S: Final = 60.0  # A coordinator with a million ids takes seconds to list them.
PAGES: Final[tuple[Page | LocalPage, ...]] = (
    LocalPage("/overview", "Overview", "overview:read", live=True, key="o"),
    Page("/transactions", "Transactions", "transactions:read_open", live=True, key="x"),
    Page("/explain", "Explain", "explain:read", key="e"),
    Page("/groups", "Groups", "groups:read_all", live=True, key="g"),
    Page("/topics", "Topics", "topics:read_all", key="t"),
    Page("/messages", "Messages", "messages:read", key="m"),
    Page("/producers", "Producers", "producers:read", key="p"),
    LocalPage("/brokers", "Brokers", "brokers:read_all", live=True, key="b"),
    Page("/security", "Security", "security:read_acls", key="s"),
    LocalPage("/metrics", "Metrics", "metrics:read", live=True, key="c"),
    Page("/mirrors", "Mirrors", "mirrors:read", key="i"),
    LocalPage("/audit", "Audit", "audit:read_all", key="a"),
    Page("/brokers/one", "Broker", "brokers:read_one"),
    Page("/security/users", "SCRAM users", "security:read_users"),
    Page("/security/quotas", "Quotas", "security:read_quotas"),
    Page("/security/acl", "An entry", "security_changes:read_acl"),
    Page("/security/user", "A SCRAM user", "security_changes:read_user"),
    Page("/security/quota", "A quota", "security_changes:read_quota"),
    Page("/transactions/one", "Transaction", "transactions:read_one"),
    Page("/transactions/ids", "Transactional ids", "transactions:read_id", patience_s=IDS_PATIENCE_S),
    Page("/transactions/bulk", "Abort all that hang", "bulk_abort:read"),
    Page("/groups/one", "Group", "groups:read_one", live=True),
    Page("/groups/reset", "Reset offsets", "groups:read_plan"),
    Page("/groups/delete", "Delete a group", "group_deletion:read"),
    Page("/topics/one", "Topic", "topics:read_one"),
    Page("/topics/change", "Change a topic", "topic_changes:read"),
    Page("/messages/one", "Message", "messages:read_one"),
    Page("/messages/search", "Search", "message_search:read_search"),
    Page("/messages/tail", "Live tail", "message_search:read_tail"),
    Page("/messages/produce", "Produce a record", "produce:read"),
    LocalPage("/messages/schema", "Schema", "registered_schemas:read"),
    LocalPage("/audit/run", "Audit run", "audit:read_run"),
    LocalPage("/audit/report", "Audit report", "audit:read_report"),
)
"""All pages; those with one path component are in the navigation."""
ACTIONS: Final = (
    Action("/transactions/abort", "Abort", "transactions:act_abort", "done.html"),
    Action("/transactions/abort-listed", "Abort", "bulk_abort:act", "done.html"),
    Action("/transactions/terminate", "Force-terminate", "transactions:act_terminate", "done.html"),
    Action("/groups/apply", "Reset offsets", "groups:act_reset", "done.html"),
    Action("/groups/remove", "Deleted", "group_deletion:act", "done.html"),
    Action(
        "/messages/produce/show", "Produce a record", "produce:act_show", "messages-produce-show.html", is_change=False
    ),
    Action("/messages/produce/send", "Produced", "produce:act_send", "done.html"),
    Action("/security/acl/add", "Add", "security_changes:act_add_acl", "done.html"),
    Action("/security/acl/remove", "Remove", "security_changes:act_remove_acl", "done.html"),
    Action("/security/user/set", "Set the password", "security_changes:act_set_user", "done.html"),
    Action("/security/user/remove", "Remove", "security_changes:act_remove_user", "done.html"),
    Action("/security/quota/set", "Set", "security_changes:act_set_quota", "done.html"),
    Action("/topics/create", "Create", "topic_changes:act_create", "done.html"),
    Action("/topics/alter", "Alter", "topic_changes:act_alter", "done.html"),
    Action("/topics/extend", "Add partitions", "topic_changes:act_extend", "done.html"),
    Action("/topics/shorten", "Delete records", "topic_changes:act_shorten", "done.html"),
    Action("/topics/delete", "Delete", "topic_changes:act_delete", "done.html"),
)
WORKS: Final = (
    Work("/tasks/audit/start", "audit:start"),
    Work("/tasks/audit/cancel", "audit:cancel"),
    Work("/tasks/audit/upload", "audit:upload"),
)
