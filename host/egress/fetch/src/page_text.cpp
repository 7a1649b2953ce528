#include "page_text.h"

#include <algorithm>
#include <array>
#include <curl/curl.h>
#include <libxml/HTMLparser.h>
#include <libxml/encoding.h>
#include <libxml/parserInternals.h>
#include <utility>
#include <vector>

namespace anchorhold::egress {
namespace {

constexpr std::size_t max_title = 300, max_href = 500, max_depth = 400;

constexpr std::array unread{"script", "style", "noscript", "template", "svg",   "math",   "iframe",
                            "object", "embed", "canvas",   "audio",    "video", "select", "button"};
constexpr std::array blocks{"p",       "div",     "section", "article", "header",     "footer", "main",
                            "aside",   "nav",     "ul",      "ol",      "table",      "tr",     "form",
                            "h1",      "h2",      "h3",      "h4",      "h5",         "h6",     "pre",
                            "figure",  "dl",      "dt",      "dd",      "blockquote", "hr",     "details",
                            "summary", "address", "li",      "body",    "fieldset",   "caption"};
// Elements without an end, which may come without one.
constexpr std::array empty_elements{"br", "hr", "img", "input", "meta", "link", "area", "base", "col", "wbr"};

template <typename Names>
bool is_one_of(std::string_view name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string_view attribute(const xmlChar** attributes, std::string_view name) {
  for (; attributes && attributes[0]; attributes += 2)
    if (name == reinterpret_cast<const char*>(attributes[0]))
      return attributes[1] ? reinterpret_cast<const char*>(attributes[1]) : "";
  return {};
}

bool has_attribute(const xmlChar** attributes, std::string_view name) {
  for (; attributes && attributes[0]; attributes += 2)
    if (name == reinterpret_cast<const char*>(attributes[0])) return true;
  return false;
}

// What a reader of the page is not shown. Not more than the plain ways: a style sheet is not read.
bool is_hidden(const xmlChar** attributes) {
  if (has_attribute(attributes, "hidden") || attribute(attributes, "aria-hidden") == "true") return true;
  std::string style;
  for (char c : attribute(attributes, "style"))
    if (c != ' ') style += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  for (const char* each : {"display:none", "visibility:hidden", "font-size:0", "opacity:0;"})
    if ((style + ";").find(each) != std::string::npos) return true;
  return false;
}

// Empty for what leads to no other page.
std::string resolved(std::string_view base, std::string_view href) {
  if (href.empty() || href.size() > max_href || href[0] == '#') return {};
  std::string result;
  CURLU* url = curl_url();
  char* text = nullptr;
  bool whole = url && curl_url_set(url, CURLUPART_URL, std::string(base).c_str(), 0) == CURLUE_OK &&
               curl_url_set(url, CURLUPART_URL, std::string(href).c_str(), 0) == CURLUE_OK &&
               curl_url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK;
  if (whole) result = text;
  curl_free(text);
  curl_url_cleanup(url);
  return result.starts_with("http://") || result.starts_with("https://") ? result : std::string();
}

}  // namespace

struct PageText::State {
  struct Open {
    std::string name;
    bool unread;
    std::string link;
    std::size_t text_at;
  };
  std::string charset, base;
  std::size_t most;
  htmlSAXHandler handler{};
  std::vector<Open> open;
  std::string page, title, text;
  std::size_t unread_depth = 0, pre_depth = 0;
  bool in_title = false, shortened = false, space_due = false;
  int breaks_due = 0;

  void put(std::string_view words) {
    if (text.size() + words.size() > most) {
      shortened = true;
      return;
    }
    text += words;
  }
  void flush_space() {
    if (!text.empty() && breaks_due > 0)
      put(std::string(static_cast<std::size_t>(std::min(breaks_due, 2)), '\n'));
    else if (space_due && !text.empty())
      put(" ");
    breaks_due = 0;
    space_due = false;
  }
  void words(std::string_view given) {
    if (in_title) {
      if (title.size() < max_title) title += given.substr(0, max_title - title.size());
      return;
    }
    if (unread_depth > 0 || shortened) return;
    if (pre_depth > 0) {
      flush_space();
      put(given);
      return;
    }
    while (!given.empty()) {
      constexpr const char* spaces = " \t\r\n\f";
      auto begin = given.find_first_not_of(spaces);
      if (begin != 0) space_due = true;
      if (begin == std::string_view::npos) return;
      given.remove_prefix(begin);
      auto end = std::min(given.find_first_of(spaces), given.size());
      flush_space();
      put(given.substr(0, end));
      given.remove_prefix(end);
    }
  }
  void line(int count) {
    breaks_due = std::max(breaks_due, count);
    space_due = false;
  }

  void begin(std::string_view name, const xmlChar** attributes) {
    if (name == "br") return line(1);
    if (name == "base") {
      if (auto href = resolved(base, attribute(attributes, "href")); !href.empty()) base = href;
      return;
    }
    if (name == "img" && unread_depth == 0) {
      if (auto alt = attribute(attributes, "alt"); !alt.empty()) words("[" + std::string(alt) + "]");
      return;
    }
    if (is_one_of(name, empty_elements) || open.size() >= max_depth) return;
    if (is_one_of(name, blocks)) line(name == "li" || name == "tr" || name == "dd" || name == "dt" ? 1 : 2);
    Open element{std::string(name), is_one_of(name, unread) || is_hidden(attributes), {}, 0};
    if (element.unread) ++unread_depth;
    if (unread_depth == 0) {
      if (name == "title" && title.empty()) in_title = true;
      if (name == "pre") ++pre_depth;
      if (name == "li") words("- ");
      if (name.size() == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6')
        words(std::string(static_cast<std::size_t>(name[1] - '0'), '#') + " ");
      if (name == "td" || name == "th") {
        if (!text.empty() && breaks_due == 0) words(" | ");
      }
      if (name == "a") element.link = resolved(base, attribute(attributes, "href"));
    }
    element.text_at = text.size();
    open.push_back(std::move(element));
  }
  void end(std::string_view name) {
    auto at = std::find_if(open.rbegin(), open.rend(), [&](const Open& each) { return each.name == name; });
    if (at == open.rend()) return;
    // What was left open inside ends here, too.
    for (auto count = at - open.rbegin() + 1; count > 0; --count) {
      Open element = std::move(open.back());
      open.pop_back();
      if (element.name == "title") in_title = false;
      if (element.name == "pre" && pre_depth > 0) --pre_depth;
      if (!element.link.empty() && text.size() > element.text_at) put(" (" + element.link + ")");
      if (element.unread) --unread_depth;
      if (is_one_of(element.name, blocks)) line(element.name == "li" || element.name == "tr" ? 1 : 2);
    }
  }
};

PageText::PageText(std::string_view charset, std::string_view base_url, std::size_t most_text)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.charset = charset;
  state.base = base_url;
  state.most = most_text;
  state.handler.startElement = [](void* user, const xmlChar* name, const xmlChar** attributes) {
    static_cast<State*>(user)->begin(reinterpret_cast<const char*>(name), attributes);
  };
  state.handler.endElement = [](void* user, const xmlChar* name) {
    static_cast<State*>(user)->end(reinterpret_cast<const char*>(name));
  };
  state.handler.characters = [](void* user, const xmlChar* words, int size) {
    static_cast<State*>(user)->words({reinterpret_cast<const char*>(words), static_cast<std::size_t>(size)});
  };
}

PageText::~PageText() = default;

void PageText::add(std::string_view bytes) {
  state_->page += bytes;
}

// All at once: libxml2 takes the end of a script for another thing when it comes in pieces.
void PageText::finish() {
  State& state = *state_;
  if (state.page.empty()) return;
  htmlParserCtxtPtr parser =
      htmlCreateMemoryParserCtxt(state.page.data(), static_cast<int>(state.page.size()));
  if (!parser) return;
  htmlSAXHandlerPtr own = std::exchange(parser->sax, &state.handler);
  parser->userData = &state;
  htmlCtxtUseOptions(parser, HTML_PARSE_RECOVER | HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING |
                                 HTML_PARSE_NONET | HTML_PARSE_COMPACT);
  xmlCharEncoding encoding = XML_CHAR_ENCODING_UTF8;
  if (!state.charset.empty()) encoding = xmlParseCharEncoding(state.charset.c_str());
  bool says_itself = state.charset.empty() && state.page.find("charset") != std::string::npos;
  if (!says_itself && encoding != XML_CHAR_ENCODING_ERROR) xmlSwitchEncoding(parser, encoding);
  htmlParseDocument(parser);
  parser->sax = own;
  htmlFreeParserCtxt(parser);
  std::string().swap(state.page);
}

const std::string& PageText::title() const {
  return state_->title;
}
const std::string& PageText::text() const {
  return state_->text;
}
bool PageText::shortened() const {
  return state_->shortened;
}

}  // namespace anchorhold::egress
