// What of a page of HTML is text for a reader, by libxml2's parser. Scripts, styles, forms
// of embedding and what the page hides from readers are left out. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace anchorhold::egress {

class PageText {
 public:
  // `charset` as the server says it; empty: what the page says of itself, else UTF-8.
  PageText(std::string_view charset, std::string_view base_url, std::size_t most_text);
  ~PageText();
  PageText(const PageText&) = delete;
  PageText& operator=(const PageText&) = delete;

  void add(std::string_view bytes);  // the caller bounds how many
  void finish();                     // what follows is known then
  const std::string& title() const;
  const std::string& text() const;
  bool shortened() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace anchorhold::egress
