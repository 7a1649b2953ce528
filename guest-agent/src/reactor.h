// Reactors of gRPC's callback interface whose every step happens on the agent's thread: gRPC's callbacks only
// post. A reactor deletes itself there, after its last callback, so nothing on that thread can meet a dead
// one.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "proto/guest.grpc.pb.h"
#include "service.h"

namespace anchorhold::guest {

// Base is a reactor class of grpc; Derived has begin(), cancelled() and, where Base needs them, more.
template <typename Base>
class LoopReactor : public Base {
 public:
  void OnCancel() final {
    post([this] {
      if (finished_) return;
      cancelled();
      finish(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
    });
  }
  void OnDone() final {
    post([this] { delete this; });
  }

 protected:
  explicit LoopReactor(AgentState& state) : state_(state) {}
  ~LoopReactor() override { *alive_ = false; }

  // The call's end was not asked for by finish().
  virtual void cancelled() {}
  // Runs once, when nothing more may be started on the call.
  virtual void finishing() {}

  void finish(grpc::Status status) {
    if (std::exchange(finished_, true)) return;
    finishing();
    this->Finish(std::move(status));
  }
  bool finished() const { return finished_; }
  void post(std::function<void()> task) { state_.loop.post(std::move(task)); }
  // Becomes false when this is deleted; for callbacks that may come later.
  std::shared_ptr<const bool> alive() const { return alive_; }

  AgentState& state_;

 private:
  bool finished_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace anchorhold::guest
