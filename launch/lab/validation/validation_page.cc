#include "launch/lab/validation/page_text.h"
#include "launch/lab/validation/validation_report.h"
#include "launch/report/html_page.h"
#include "launch/report/json_writer.h"

namespace tpsim::launch {

std::string validation_page(const proto::Validation& validation) {
  return fill_page(validation_template(), to_json(validation));
}

}  // namespace tpsim::launch
