// Running commands in tests, and waiting for states of the world.
#pragma once

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "session/guest_client.h"

namespace anchorhold::session {

// The deadline only ends a test that would fail.
inline bool eventually(const std::function<bool()>& condition) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

struct Outcome {
  ExecStatus status;
  std::string out;
  std::string err;
};

inline Outcome run(GuestClient& client, ExecSpec spec, std::string_view input = {}) {
  Outcome outcome;
  if (spec.working_directory.empty()) spec.working_directory = "/";
  auto status = client.run(spec,
                           {[&](std::string_view bytes) { outcome.out += bytes; },
                            [&](std::string_view bytes) { outcome.err += bytes; }},
                           input);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  if (status) outcome.status = *status;
  return outcome;
}

inline ExecSpec shell(std::string command) {
  ExecSpec spec;
  spec.shell_command = std::move(command);
  spec.working_directory = "/";
  return spec;
}

inline ExecSpec program(std::vector<std::string> argv) {
  ExecSpec spec;
  spec.argv = std::move(argv);
  spec.working_directory = "/";
  return spec;
}

}  // namespace anchorhold::session
