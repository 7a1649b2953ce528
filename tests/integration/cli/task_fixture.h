// Scripts for tasks: turns of text and tool calls in the form that --model scripted:FILE reads.
#pragma once

#include "cli_fixture.h"

namespace anchorhold::cli {

using nlohmann::json;

inline json call(const std::string& name, json input) {
  return json{{"type", "tool_use"}, {"name", name}, {"input", std::move(input)}};
}
inline json shell(const std::string& command) {
  return call("shell", {{"command", command}});
}
inline json words(const std::string& text) {
  return json{{"type", "text"}, {"text", text}};
}

class TaskTest : public CliTest {
 protected:
  // Writes the script; gives the value of --model.
  std::string script(const std::vector<std::vector<json>>& turns) {
    json all = json::array();
    for (const auto& blocks : turns) all.push_back(json{{"content", blocks}});
    auto path = home() / "script.json";
    write_text(path, json{{"turns", all}}.dump());
    return "scripted:" + path.string();
  }
  static std::vector<json> of_type(const std::vector<json>& all, const std::string& type) {
    std::vector<json> found;
    for (const auto& object : all)
      if (object.at("type") == type) found.push_back(object);
    return found;
  }
};

}  // namespace anchorhold::cli
