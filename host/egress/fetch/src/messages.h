// What the host and anchorhold-fetch say to each other: one JSON text each way, in memory that both have.
#pragma once

#include <string>
#include <string_view>

#include "egress/fetch.h"

namespace anchorhold::egress {

namespace fetch_fd {
inline constexpr int request = 3, answer = 4;
inline constexpr int first_stream = 5;  // one for each hop: max_redirects + 1
}  // namespace fetch_fd

struct FetchOrder {
  FetchRequest request;
  std::string trust_pem;
};
std::string encode_order(const FetchOrder& order);
Result<FetchOrder> parse_order(std::string_view text);

std::string encode_answer(const Result<FetchedPage>& page);
// Hostile bytes: the process has read a server's.
Result<FetchedPage> parse_answer(std::string_view text, const FetchRequest& request);

}  // namespace anchorhold::egress
