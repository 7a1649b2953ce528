#include "session/web_access.h"

namespace anchorhold::session {

Result<agent::WebPage> SessionWeb::fetch(const std::string& url, std::stop_token stop) {
  auto page = ANCHORHOLD_TRY(session_.fetch(url, std::move(stop)));
  return agent::WebPage{.url = std::move(page.url),
                        .status = page.status,
                        .type = std::move(page.type),
                        .title = std::move(page.title),
                        .text = std::move(page.text),
                        .shortened = page.shortened};
}

}  // namespace anchorhold::session
