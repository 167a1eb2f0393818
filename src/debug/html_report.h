/* debug/html_report.h - renders a program as an HTML page. */
#ifndef TCI_DEBUG_HTML_REPORT_H
#define TCI_DEBUG_HTML_REPORT_H

#include "../run/runtime_structs.h"

#ifndef TC_NO_DEBUG
/* The whole page. */
TCI_FN void tci_report_html(tci_str *out, const tc_program *f);
#endif
/* TC_DUMP=html: writes NAME.html and a line of index.html to the dump folder. */
TCI_FN void tci_report_dump(const tc_program *f, const tc_options *o);

#endif
