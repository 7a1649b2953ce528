// What was asked for on the command line, as plain values. Pure: nothing is opened, started or printed here.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "events/event_log.h"
#include "mounts/mode.h"
#include "policy/egress_policy.h"
#include "policy/explain.h"
#include "session/asker.h"
#include "vault/credential.h"

namespace anchorhold::cli {

struct GrantArgument {
  std::filesystem::path path;
  mounts::Mode mode = mounts::Mode::ro;
};

struct GuestArguments {
  std::vector<GrantArgument> grants;  // in the order they were given
  std::string image = "base";
  unsigned cpus = 0;  // 0: the default
  ByteSize memory;    // 0: the default
  std::string hypervisor_uri;
  bool emulate = false;  // do not use KVM even where there is
  // In each granted folder.
  std::optional<unsigned> bulk_limit;  // none: the default; 0: no guard
  ByteSize write_limit;                // 0: the default
  std::uint64_t file_limit = 0;        // 0: the default
  bool refuse_escaping_symlinks = false;
  std::vector<policy::EgressRule> network;              // of --allow and --deny
  std::optional<std::vector<std::string>> credentials;  // the only ones to use; none: all that rules name
  std::vector<policy::EgressRule> answers;              // of a session that is resumed
  bool wait_for_answers = false;                        // ask although there is no terminal
};

struct RunCommand {
  GuestArguments guest;
  std::optional<std::chrono::milliseconds> timeout;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;
  std::string user;
  bool tty = false;
  std::vector<std::string> argv;
};

struct TaskCommand {
  GuestArguments guest;
  std::string prompt;
  std::filesystem::path prompt_file;
  std::string model;  // empty: chosen from the environment
  std::string base_url;
  std::filesystem::path key_file;
  std::optional<unsigned> max_turns;
  std::optional<std::chrono::milliseconds> max_time;
};

struct SessionsCommand {
  enum class Action { list, show, grant, stop, resume, remove };
  Action action = Action::list;
  std::string id;
  std::vector<GrantArgument> grants;  // grant: in the order they were given
  bool force = false;                 // stop: kill when it does not end by itself
  bool wait_for_answers = false;      // resume
  bool forget_undo = false;           // remove: also what it changed and could still be undone
  // resume: what is to be different from now on; empty: as it was.
  std::string model;
  std::string base_url;
  std::filesystem::path key_file;
  std::optional<unsigned> max_turns;
  std::optional<std::chrono::milliseconds> max_time;
};

// Paths are the guest's (/mnt/report/a.txt), the host's, or from the one granted folder.
struct ChangesCommand {
  std::string id;
  std::vector<std::string> paths;
  bool diff = false;
};

struct UndoCommand {
  std::string id;
  std::vector<std::string> paths;
  bool dry_run = false;
  bool force = false;
  bool redo = false;
};

struct EventsCommand {
  enum class Action { list, follow, verify };
  Action action = Action::list;
  events::Filter filter;
  std::optional<events::Head> head;
};

struct EgressCommand {
  enum class Action { explain, pending, answer, rules, forget };
  Action action = Action::rules;
  policy::ExplainQuery query;  // explain
  bool resolve = false;        // explain: also look up and judge the addresses
  std::string session;   // explain, rules: of this session, or the beginning of its id; empty: of a new one
  std::string question;  // answer: "SESSION.NUMBER"
  session::Approval answer = session::Approval::deny;
  std::string rule;  // forget
};

struct ImageCommand {
  enum class Action { list, build, verify, remove, collect_garbage };
  Action action = Action::list;
  std::string name;
  bool refresh = false;
};

struct CredentialCommand {
  enum class Action { add, list, remove, test, passphrase };
  Action action = Action::list;
  vault::Credential credential;       // its name; add: what is known of it
  std::optional<vault::Store> store;  // add: none: where it is best
  bool passphrase = false;            // add: protects a new file of secrets
  bool replace = false;               // add
  bool none = false;                  // passphrase: a key file instead
  std::string url;                    // test
};

struct DoctorCommand {
  GuestArguments guest;
};

using Command = std::variant<RunCommand, TaskCommand, SessionsCommand, ChangesCommand, UndoCommand,
                             EventsCommand, EgressCommand, ImageCommand, DoctorCommand, CredentialCommand>;

struct Arguments {
  Command command;
  bool json = false;
  bool verbose = false;
};

// The text to print when what was asked for is help or the version.
struct HelpText {
  std::string text;
};

// argv without the program's name. An error is invalid_argument with the usage as its hint.
Result<std::variant<Arguments, HelpText>> parse_arguments(const std::vector<std::string>& argv);

}  // namespace anchorhold::cli
