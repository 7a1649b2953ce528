// The one table of event names. A name that is not here cannot be recorded: an Event is made from an entry of
// this table. Names are those of OpenTelemetry's style; an entry also says how grave the event is and whether
// whoever caused it must wait until it is on the disk.
#pragma once

#include <string_view>

namespace anchorhold::events {

// Allowed is info, refused is warn, a broken boundary or a failure of ours is error. The values are
// OpenTelemetry's severity numbers (Logs Data Model, "Field: SeverityNumber").
enum class Severity { info = 9, warn = 13, error = 17 };
std::string_view to_string(Severity severity);

// boundary: recorded means on the disk. routine: recorded means in the log, on the disk with the next
// boundary event at the latest; a power failure may lose it, the death of the process does not.
enum class Durability { boundary, routine };

struct EventName {
  std::string_view text;
  Severity severity;
  Durability durability;
};

// A guest's life. `stop` carries the cause; `fail` is a guest that did not start or was lost, with the true
// cause.
inline constexpr EventName vm_start{"anchorhold.vm.start", Severity::info, Durability::boundary};
inline constexpr EventName vm_ready{"anchorhold.vm.ready", Severity::info, Durability::boundary};
inline constexpr EventName vm_stop{"anchorhold.vm.stop", Severity::info, Durability::boundary};
inline constexpr EventName vm_fail{"anchorhold.vm.fail", Severity::error, Durability::boundary};

// A guest dialled a port that the host did not open for it.
inline constexpr EventName vsock_refuse{"anchorhold.vsock.refuse", Severity::warn, Durability::boundary};
// A guest broke the rules of what an open port carries; its stream was reset.
inline constexpr EventName vsock_violation{"anchorhold.vsock.violation", Severity::error,
                                           Durability::boundary};

// A command in the guest. What the guest says of its end is guest.reported.*.
inline constexpr EventName exec_start{"anchorhold.exec.start", Severity::info, Durability::boundary};
inline constexpr EventName exec_end{"anchorhold.exec.end", Severity::info, Durability::routine};

// A folder given to a guest, and anything a guest tried there that was refused.
inline constexpr EventName mount_grant{"anchorhold.mount.grant", Severity::info, Durability::boundary};
// Given by mount_grant, but the guest could not use it: it is gone again, and `cause` says why.
inline constexpr EventName mount_revoke{"anchorhold.mount.revoke", Severity::warn, Durability::boundary};
inline constexpr EventName mount_violation{"anchorhold.mount.violation", Severity::warn,
                                           Durability::boundary};

// What a guest wanted to reach. `deny` is also what cuts an open connection that a new policy does not allow;
// `fail` is the egress process that was lost, and with it every connection, with the true cause.
inline constexpr EventName egress_allow{"anchorhold.egress.allow", Severity::info, Durability::routine};
inline constexpr EventName egress_deny{"anchorhold.egress.deny", Severity::warn, Durability::boundary};
inline constexpr EventName egress_ask{"anchorhold.egress.ask", Severity::info, Durability::boundary};
inline constexpr EventName egress_answer{"anchorhold.egress.answer", Severity::info, Durability::boundary};
inline constexpr EventName egress_fail{"anchorhold.egress.fail", Severity::error, Durability::boundary};

// A secret that took the place of the session's token in one request; a request whose credential was not the
// session's own, or that took the token elsewhere.
inline constexpr EventName credential_use{"anchorhold.credential.use", Severity::info, Durability::boundary};
inline constexpr EventName credential_reject{"anchorhold.credential.reject", Severity::error,
                                             Durability::boundary};

// The rules in force, from the beginning and at each change; text that could not be taken.
inline constexpr EventName policy_load{"anchorhold.policy.load", Severity::info, Durability::boundary};
inline constexpr EventName policy_reject{"anchorhold.policy.reject", Severity::error, Durability::boundary};

// Allowed, but a person should know: a symlink that leads out of the folder, what its file system cannot do.
inline constexpr EventName mount_notice{"anchorhold.mount.notice", Severity::warn, Durability::routine};

// A person was asked, and this was the answer; also "no" because nobody answered.
inline constexpr EventName approval{"anchorhold.approval", Severity::info, Durability::boundary};

// A person has what a session did to a granted folder undone, or done again; and what came of it.
inline constexpr EventName mount_undo{"anchorhold.mount.undo", Severity::info, Durability::boundary};
inline constexpr EventName mount_undone{"anchorhold.mount.undone", Severity::info, Durability::routine};

// A tool the model called, and what came of it.
inline constexpr EventName tool_call{"anchorhold.tool.call", Severity::info, Durability::boundary};
inline constexpr EventName tool_result{"anchorhold.tool.result", Severity::info, Durability::routine};

// Old records were removed, as the log's retention says. Names the last of them and its hash, so that the
// chain goes on from there.
inline constexpr EventName log_prune{"anchorhold.log.prune", Severity::info, Durability::boundary};

// One request to a model. Name and attributes: OpenTelemetry GenAI semantic conventions.
inline constexpr EventName model_call{"gen_ai.client.inference.operation.details", Severity::info,
                                      Durability::routine};

}  // namespace anchorhold::events
