#include "risk.h"

#include <algorithm>
#include <array>
#include <vector>

#include "mounts/hidden.h"

namespace anchorhold::mounts {
namespace {

using std::string_view;

struct NameRule {
  string_view name;
  string_view reason;
};

constexpr string_view build = "a build runs what it says";
constexpr string_view package = "a package manager runs what it says";
constexpr string_view shell = "a shell runs it when it starts";
constexpr string_view continuous = "an automatic build runs what it says";
constexpr string_view editor = "an editor or a development tool runs what it says";

// Names of files, folded; at any depth.
constexpr std::array names{
    NameRule{".envrc", "direnv runs it when a shell enters the folder"},
    NameRule{"makefile", build},
    NameRule{"gnumakefile", build},
    NameRule{"cmakelists.txt", build},
    NameRule{"meson.build", build},
    NameRule{"justfile", build},
    NameRule{"rakefile", build},
    NameRule{"build.gradle", build},
    NameRule{"build.gradle.kts", build},
    NameRule{"gradlew", build},
    NameRule{"pom.xml", build},
    NameRule{"build.rs", build},
    NameRule{"sconstruct", build},
    NameRule{"package.json", package},
    NameRule{"setup.py", package},
    NameRule{"setup.cfg", package},
    NameRule{"pyproject.toml", package},
    NameRule{"conftest.py", "a test run runs it"},
    NameRule{"tox.ini", "a test run runs what it says"},
    NameRule{"noxfile.py", "a test run runs it"},
    NameRule{"sitecustomize.py", "Python runs it when it starts"},
    NameRule{"usercustomize.py", "Python runs it when it starts"},
    NameRule{"gemfile", package},
    NameRule{"composer.json", package},
    NameRule{"cargo.toml", package},
    NameRule{".pnpmfile.cjs", package},
    NameRule{".yarnrc.yml", package},
    NameRule{"dockerfile", "building the container runs it"},
    NameRule{"docker-compose.yml", "starting the containers runs what it says"},
    NameRule{"compose.yaml", "starting the containers runs what it says"},
    NameRule{".gitlab-ci.yml", continuous},
    NameRule{"jenkinsfile", continuous},
    NameRule{"azure-pipelines.yml", continuous},
    NameRule{".travis.yml", continuous},
    NameRule{"bitbucket-pipelines.yml", continuous},
    NameRule{".pre-commit-config.yaml", "git runs what it says before a commit"},
    NameRule{".gitmodules", "git fetches and trusts what it says"},
    NameRule{".gitattributes", "it can make git run filters"},
    NameRule{".bashrc", shell},
    NameRule{".bash_profile", shell},
    NameRule{".bash_aliases", shell},
    NameRule{".profile", shell},
    NameRule{".zshrc", shell},
    NameRule{".zshenv", shell},
    NameRule{".zprofile", shell},
    NameRule{"config.fish", shell},
    NameRule{".vimrc", editor},
    NameRule{".exrc", editor},
    NameRule{".dir-locals.el", editor},
    NameRule{".tool-versions", editor},
    NameRule{".mise.toml", editor},
};

constexpr std::array endings{
    NameRule{".desktop", "it is a starter: opening it runs a program"},
    NameRule{".service", "systemd runs what it says"},
    NameRule{".timer", "systemd runs what it says"},
    NameRule{".appimage", "it is a program"},
    NameRule{".exe", "it is a program"},
    NameRule{".msi", "it is a program"},
    NameRule{".bat", "it is a program"},
    NameRule{".cmd", "it is a program"},
    NameRule{".ps1", "it is a program"},
    NameRule{".vbs", "it is a program"},
    NameRule{".scr", "it is a program"},
    NameRule{".lnk", "it is a starter: opening it runs a program"},
    NameRule{".jar", "it is a program"},
    NameRule{".pth", "Python runs what it says when it starts"},
    NameRule{".csproj", build},
    NameRule{".vcxproj", build},
    NameRule{".mk", build},
    NameRule{".gyp", build},
    NameRule{".docm", "it is a document with macros"},
    NameRule{".dotm", "it is a document with macros"},
    NameRule{".xlsm", "it is a document with macros"},
    NameRule{".xltm", "it is a document with macros"},
    NameRule{".xlam", "it is a document with macros"},
    NameRule{".xlsb", "it is a document that can have macros"},
    NameRule{".pptm", "it is a document with macros"},
    NameRule{".ppam", "it is a document with macros"},
};

// Two names, one in the other, anywhere in the path.
struct FolderRule {
  string_view folder, inside;  // inside empty: everything
  string_view reason;
};
constexpr std::array folders{
    FolderRule{".github", "workflows", continuous},
    FolderRule{".github", "actions", continuous},
    FolderRule{".circleci", "", continuous},
    FolderRule{".gitea", "workflows", continuous},
    FolderRule{".forgejo", "workflows", continuous},
    FolderRule{".woodpecker", "", continuous},
    FolderRule{".ci", "", continuous},
    FolderRule{".buildkite", "", continuous},
    FolderRule{".husky", "", "git runs it"},
    FolderRule{".githooks", "", "git can be made to run it"},
    FolderRule{".vscode", "tasks.json", editor},
    FolderRule{".vscode", "launch.json", editor},
    FolderRule{".vscode", "settings.json", editor},
    FolderRule{".devcontainer", "", editor},
    FolderRule{".idea", "", editor},
    FolderRule{".cargo", "config.toml", build},
    FolderRule{"autostart", "", "the desktop runs it when it starts"},
    FolderRule{".config", "systemd", "systemd runs what it says"},
};

std::vector<std::string> folded_components(string_view path) {
  std::vector<std::string> components;
  while (!path.empty()) {
    auto slash = std::min(path.find('/'), path.size());
    components.push_back(fold_name(path.substr(0, slash)));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return components;
}

bool contains_word(string_view text, string_view word) {
  auto same = [](char a, char b) {
    auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(a) == lower(b);
  };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

std::optional<std::string> risk_in_git(const std::vector<std::string>& components, const RiskFacts& facts) {
  for (std::size_t i = 0; i < components.size(); ++i) {
    const std::string& name = components[i];
    if (name != ".git" && !name.ends_with(".git")) continue;
    if (i + 1 == components.size())
      return name == ".git" && facts.beginning.starts_with("gitdir:")
                 ? std::optional<std::string>("it makes git use a repository that is elsewhere")
                 : std::nullopt;
    for (std::size_t inner = i + 1; inner < components.size(); ++inner) {
      if (components[inner] == "hooks" && inner + 2 == components.size() &&
          !components.back().ends_with(".sample"))
        return "git runs it";
      if (components[inner] == "attributes" && inner + 1 == components.size())
        return "it can make git run filters";
    }
    if (components.back() == "config" || components.back() == "config.worktree") {
      for (string_view word : {"fsmonitor", "hookspath", "sshcommand", "[filter", "textconv", "[alias",
                               "pager", "editor", "[credential", "gpg", "[include", "external", "askpass",
                               "proxy", "driver", "uploadpack", "receivepack"})
        if (contains_word(facts.beginning, word))
          return "git would run what it says (" + std::string(word.front() == '[' ? word.substr(1) : word) +
                 ")";
      return "it tells git what to do";
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> risk_of_running(const RiskFacts& facts) {
  auto components = folded_components(facts.path);
  if (components.empty()) return std::nullopt;
  if (auto git = risk_in_git(components, facts)) return git;
  for (std::size_t i = 0; i + 1 < components.size(); ++i)
    for (const auto& rule : folders)
      if (components[i] == rule.folder && (rule.inside.empty() || components[i + 1] == rule.inside))
        return std::string(rule.reason);
  for (const auto& rule : names)
    if (components.back() == rule.name) return std::string(rule.reason);
  for (const auto& rule : endings)
    if (components.back().ends_with(rule.name)) return std::string(rule.reason);
  if (facts.executable_now) return "it is a program now";
  // A document whose name hides its macros; the list of what is in a zip file is at its end.
  if (facts.beginning.starts_with("PK\x03\x04") && facts.end.find("vbaProject.bin") != string_view::npos)
    return "it is a document with macros";
  return std::nullopt;
}

}  // namespace anchorhold::mounts
