// Every test of this program runs in a network of its own, which must be entered before there is a second
// thread.
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  anchorhold::testing::prepare_private_network();
  return RUN_ALL_TESTS();
}
