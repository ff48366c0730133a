// The page at /: src/serve/page.html, as a part of the program.
#include "serve/server.h"

extern const char page_begin[], page_end[];

__asm__(".pushsection .rodata\n"
        "page_begin: .incbin \"src/serve/page.html\"\n"
        "page_end: .byte 0\n"
        ".popsection\n");

void handle_page(struct request *request)
{
    struct buffer out = {0};
    request->type = "text/html; charset=utf-8";
    buffer_add(&out, page_begin, (size_t)(page_end - page_begin));
    request_send_all(request, &out);
}
