// Templates of libraries that dozens of sources would compile alike, each for itself: declared here for all
// that use the precompiled headers (precompiled.cmake), compiled once in precompiled.cc.
#ifndef TPSIM_TEMPLATE
#define TPSIM_TEMPLATE extern template
#endif

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

// The heart of fmt::format_to; other releases of fmt declare it otherwise.
#if FMT_VERSION / 10000 == 9
TPSIM_TEMPLATE void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                  fmt::format_args, fmt::detail::locale_ref);
#endif

// What reads JSON from a string, a string_view and a stream, and what writes it.
TPSIM_TEMPLATE class nlohmann::detail::serializer<nlohmann::json>;
TPSIM_TEMPLATE class nlohmann::detail::serializer<nlohmann::ordered_json>;
TPSIM_TEMPLATE class nlohmann::detail::lexer<
    nlohmann::json, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>;
TPSIM_TEMPLATE class nlohmann::detail::lexer<nlohmann::json,
                                             nlohmann::detail::iterator_input_adapter<const char*>>;
TPSIM_TEMPLATE class nlohmann::detail::lexer<nlohmann::json, nlohmann::detail::input_stream_adapter>;
TPSIM_TEMPLATE class nlohmann::detail::parser<
    nlohmann::json, nlohmann::detail::iterator_input_adapter<std::string::const_iterator>>;
TPSIM_TEMPLATE class nlohmann::detail::parser<nlohmann::json,
                                              nlohmann::detail::iterator_input_adapter<const char*>>;
TPSIM_TEMPLATE class nlohmann::detail::parser<nlohmann::json, nlohmann::detail::input_stream_adapter>;
TPSIM_TEMPLATE class nlohmann::detail::json_sax_dom_parser<nlohmann::json>;
TPSIM_TEMPLATE class nlohmann::detail::json_sax_dom_callback_parser<nlohmann::json>;
