#include "decide.h"

#include <cerrno>

namespace anchorhold::mounts {
namespace {

bool is_protected(const Subject& subject) {
  return subject.exists && (subject.pre_existing || subject.stands_for_pre_existing);
}

Decision refused(std::string_view reason) {
  Decision decision;
  decision.error = EACCES;
  decision.reason = reason;
  return decision;
}

}  // namespace

Decision decide(Mode mode, Operation operation, const Facts& facts) {
  Decision decision;
  if (mode == Mode::ro) {
    decision.error = EROFS;
    decision.reason = "the folder is granted read-only";
    return decision;
  }
  const bool no_delete = mode == Mode::rw_no_delete;
  const bool existed = facts.object.exists && facts.object.pre_existing;
  switch (operation) {
    case Operation::create:
    case Operation::link:
      break;
    case Operation::write:
      decision.keep_object = existed;
      break;
    case Operation::set_attributes:
      decision.record_object = existed;
      break;
    case Operation::remove:
      if (no_delete && is_protected(facts.object))
        return refused("removing what was there before the session is not allowed in this folder");
      decision.keep_object = existed;
      break;
    case Operation::rename:
      if (no_delete && is_protected(facts.object))
        return refused("renaming what was there before the session is not allowed in this folder");
      decision.record_object = existed;
      decision.keep_target = facts.target.exists && facts.target.pre_existing;
      decision.target_passes_on = is_protected(facts.target);
      break;
    case Operation::exchange:
      if (no_delete && (is_protected(facts.object) || is_protected(facts.target)))
        return refused(
            "swapping what was there before the session for something else is not allowed in this folder");
      decision.record_object = existed;
      decision.record_target = facts.target.exists && facts.target.pre_existing;
      break;
  }
  return decision;
}

}  // namespace anchorhold::mounts
