#include "relay_loops.h"

#include <system_error>

namespace anchorhold::egress {

RelayLoops::~RelayLoops() {
  for (auto& loop : loops_) {
    loop->context.stop();
    loop->thread.join();
  }
}

bool RelayLoops::begin_one() {
  try {
    auto loop = std::make_unique<Loop>();
    loop->thread = std::thread([&context = loop->context] { context.run(); });
    loops_.push_back(std::move(loop));
    return true;
  } catch (const std::system_error&) {  // no thread, or no descriptors for its loop
    return false;
  }
}

asio::io_context& RelayLoops::next() {
  if (loops_.size() < most_) (void)begin_one();
  if (loops_.empty()) return otherwise_;
  return loops_[turn_++ % loops_.size()]->context;
}

}  // namespace anchorhold::egress
