// What programs of the host change while a guest uses it: one guest for all of it, and a program in the guest
// to talk with.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "granted_guest.h"

namespace anchorhold::mounts {

// A program of the guest that takes lines and answers with lines.
class Talk {
 public:
  Talk(GrantedGuest& guest, const std::string& script) {
    session::ExecSpec spec;
    spec.argv = {"python3", "-c", script};
    spec.errors = session::ExecSpec::Errors::merged;
    spec.input = session::ExecSpec::Input::pipe;
    spec.time_limit = std::chrono::minutes(10);
    auto exec = guest.client().start(spec);
    if (exec) exec_ = std::move(*exec);
    EXPECT_TRUE(exec_) << (exec ? "" : exec.error().message);
  }
  void say(const std::string& line) {
    auto written = exec_->write_input(line + "\n");
    EXPECT_TRUE(written) << written.error().message;
  }
  // The next line, without its end; "(end)" when there is none.
  std::string hear() {
    for (;;) {
      if (auto end = heard_.find('\n'); end != std::string::npos) {
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      auto more = exec_->read(session::OutputStream::standard_output);
      if (!more || !*more) {
        if (!heard_.empty()) ADD_FAILURE() << heard_;
        return "(end)";
      }
      heard_ += **more;
    }
  }
  std::string ask(const std::string& line) {
    say(line);
    return hear();
  }
  // Skips lines until this one.
  bool hear_until(const std::string& wanted) {
    std::string all;
    for (std::string line = hear();; line = hear()) {
      if (line == wanted) return true;
      all += line + "\n";
      if (line == "(end)") break;
    }
    ADD_FAILURE() << "no \"" << wanted << "\" in\n" << all;
    return false;
  }
  void end() {
    (void)exec_->close_input();
    auto status = exec_->wait();
    EXPECT_TRUE(status && status->ok())
        << (status ? to_string(*status) : status.error().message) << " " << heard_ << hear();
  }

 private:
  std::unique_ptr<session::GuestExec> exec_;
  std::string heard_;
};

inline void write_in_place(const std::filesystem::path& path, const std::string& text) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  ASSERT_EQ(ftruncate(fd.get(), static_cast<off_t>(text.size())), 0);
}

inline void replace(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  write_in_place(temporary, text);
  std::filesystem::rename(temporary, path);
}

class Coherence : public GrantedGuestTest {
 protected:
  static void SetUpTestSuite() {
    boot({{"read", Mode::ro}, {"work", Mode::rw}, {"keep", Mode::rw_no_delete}, {"commands", Mode::rw}});
  }
};

}  // namespace anchorhold::mounts
