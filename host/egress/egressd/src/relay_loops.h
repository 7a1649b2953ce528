// Threads that move bytes which nobody reads: tunnels go past the one loop on which everything else is
// judged, and many of them use more than one processor. Begun when the first tunnel is.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace anchorhold::egress {

namespace asio = boost::asio;

class RelayLoops {
 public:
  // `most`: threads; with none, and when none can be begun, `otherwise` does it.
  RelayLoops(asio::io_context& otherwise, unsigned most) : otherwise_(otherwise), most_(most) {}
  ~RelayLoops();
  // One after another.
  asio::io_context& next();

 private:
  struct Loop {
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::thread thread;
  };
  bool begin_one();

  asio::io_context& otherwise_;
  const unsigned most_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::size_t turn_ = 0;
};

}  // namespace anchorhold::egress
