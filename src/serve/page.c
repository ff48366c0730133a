// What the program has within it: the page at /, and the description of its routes at /openapi.json.
#include "serve/server.h"

extern const char page_begin[], page_end[], openapi_begin[], openapi_end[];

__asm__(".pushsection .rodata\n"
        "page_begin: .incbin \"src/serve/page.html\"\n"
        "page_end: .byte 0\n"
        "openapi_begin: .incbin \"src/serve/openapi.json\"\n"
        "openapi_end: .byte 0\n"
        ".popsection\n");

void handle_page(struct request *request)
{
    struct buffer out = {0};
    request->type = "text/html; charset=utf-8";
    buffer_add(&out, page_begin, (size_t)(page_end - page_begin));
    request_send_all(request, &out);
}

void handle_openapi(struct request *request)
{
    struct buffer out = {0};
    buffer_add(&out, openapi_begin, (size_t)(openapi_end - openapi_begin));
    request_send_all(request, &out);
}
