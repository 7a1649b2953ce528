// Counts what the guest writes against the grant's quota, which the keeper has. The keeper is asked for
// credit in larger pieces, so that most writes ask nobody. Safe from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "mounts/keeper_client.h"

namespace anchorhold::mounts {

class WriteAccount {
 public:
  explicit WriteAccount(KeeperClient* keeper) : keeper_(keeper) {}

  // Before so many bytes are written: 0, or an errno (EDQUOT: the quota is used up).
  int take(std::uint64_t bytes) {
    std::uint64_t left = credit_;
    while (left >= bytes)
      if (credit_.compare_exchange_weak(left, left - bytes)) return 0;
    if (int error = ask(std::max(bytes, piece)); error == 0) {
      credit_ += std::max(bytes, piece) - bytes;
      return 0;
    } else if (error != EDQUOT || bytes >= piece) {
      return error;
    }
    return ask(bytes);  // the last ones
  }

 private:
  static constexpr std::uint64_t piece = 8u << 20;

  int ask(std::uint64_t bytes) {
    if (!keeper_) return EROFS;
    auto request = make_request(Verb::account);
    request.size = bytes;
    return keeper_->ask(request, {}).error;
  }

  KeeperClient* keeper_;
  std::atomic<std::uint64_t> credit_{0};
};

}  // namespace anchorhold::mounts
