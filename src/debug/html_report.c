/* debug/html_report.c - renders a program as an HTML page.
 *
 * In: a program. Out: one HTML file that needs no network: its data as JSON, and a script that
 * draws them. Launches are boxes from top to bottom in their order, forward on the left and
 * backward on the right, within their regions, which fold. The width of a box is its time by the
 * cost model; lines are buffers, whose width shows their bytes; below is the memory plan over the
 * launches. A click on a box shows the kernel's nodes with their lines, its kernel IR, loop IR and
 * source; a click elsewhere shows the summary, the phases of the compile, and the programs of the
 * process with the reason why each was compiled.
 *
 * Design: the order of launches is the layout, so nothing is computed that grows faster than the
 * program. Graph layout tools do not finish on 3,000 nodes. */
#include "html_report.h"

#include <string.h>

#include "../api/debug.h"
#include "dump.h"
#include "explain.h"
#include "string_intern.h"
#include "source_location.h"
#include "recompile.h"
#include "summary.h"

#ifndef TC_NO_DEBUG

static const char tci_report_head[] =
    "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>tc</title><style>\n"
    "body{font:13px sans-serif;margin:0;display:flex;height:100vh}\n"
    "#map{flex:2;overflow:auto;padding:8px;position:relative}\n"
    "#side{flex:1;overflow:auto;padding:8px;border-left:1px solid #bbb;background:#fafafa}\n"
    "pre{font:11px monospace;white-space:pre-wrap}pre.t{white-space:pre;overflow-x:auto}\n"
    ".p b{display:inline-block;height:9px;margin-right:4px;background:#a8c8f0}\n"
    ".k{cursor:pointer}.k:hover rect{stroke:#000}.r{cursor:pointer}\n"
    "text{font:11px sans-serif;pointer-events:none}summary{cursor:pointer;margin:6px 0}\n"
    "</style></head><body><div id=\"map\"></div><div id=\"side\"></div>\n"
    "<script id=\"data\" type=\"application/json\">";

static const char tci_report_script_1[] =
    "</script><script>\n"
    "var D=JSON.parse(document.getElementById('data').textContent),folded={},S=D.steps;\n"
    "function esc(t){return String(t).replace(/&/g,'&amp;').replace(/</g,'&lt;')"
    ".replace(/\"/g,'&quot;')}\n"
    "function us(n){return n<1e3?n.toFixed(0)+' ns':n<1e6?(n/1e3).toFixed(1)+' us':"
    "(n/1e6).toFixed(2)+' ms'}\n"
    "function kb(n){return n<10240?n+' B':n<1e7?(n/1024).toFixed(0)+' KiB':"
    "(n/1048576).toFixed(1)+' MiB'}\n"
    "function part(n,t){return t?'<details open><summary>'+n+'</summary><pre>'+esc(t)+"
    "'</pre></details>':''}\n"
    "function lines(a){var m={},l=[];a.forEach(function(t){var i=t.indexOf(' '),k=t.slice(i+1);"
    "if(!m[k]){m[k]=[];l.push(k)}m[k].push(t.slice(0,i))});\n"
    " return l.map(function(k){return k+': '+m[k].join(' ')}).join('\\n')}\n"
    "function show(i){var s=S[i],k=D.kernels[s.kernel],t='<h3>'+esc(k.name)+'</h3><p>launch '+"
    "(i+1)+', '+us(s.ns)+' by the model, '+kb(s.bytes)+', '+s.flops+' flops</p><p>'+esc(s.from)+"
    "'</p><p>'+esc(s.region)+'</p><pre>'+esc(k.note)+'</pre><p>buffers</p><pre>';\n"
    " s.operands.forEach(function(o){var b=D.buffers[o.buffer];t+=(o.write?'write ':'read ')+"
    "b.kind+o.buffer+' '+b.shape+', '+kb(b.bytes)+'\\n'});\n"
    " t+='</pre>'+part('nodes',lines(s.nodes));['kernel','loop','source'].forEach(function(n){"
    "t+=part(n,k[n])});\n"
    " document.getElementById('side').innerHTML=t}\n"
    "function home(){var t='<h2>'+esc(D.name)+'</h2><pre "
    "class=\"t\">'+esc(D.explain)+'</pre><h3>compile</h3>',"
    "top=0;D.phases.forEach(function(p){top+=p[1]});\n"
    " D.phases.forEach(function(p){t+='<div class=\"p\"><b style=\"width:'+(top?100*p[1]/top:0)."
    "toFixed(1)+'px\"></b>'+p[0]+' '+us(p[1])+'</div>'});\n"
    " document.getElementById('side').innerHTML=t+(D.found?'<p>found in the '+D.found+' cache</p>':"
    "'')+'<h3>programs of this process</h3><pre>'+esc(D.history)+'</pre>'}\n"
    "function groups(){var g=[],last=null;S.forEach(function(s,i){var n=(s.region||'').replace("
    "/^backward of /,'').split('.')[0]||'(no region)';if(!last||last.name!=n||last.back!=s.back)"
    "{last={name:n,back:s.back,steps:[]};g.push(last)}last.steps.push(i)});return g}\n";

static const char tci_report_script_2[] =
    "function draw(){var top=1,W=760,mid=W/2,y=10,h='',at=[];\n"
    " S.forEach(function(s){top=Math.max(top,s.ns)});\n"
    " groups().forEach(function(g,n){var x=g.back?mid+20:20,key=n+g.name,f=folded[key],y0=y;"
    "y+=18;\n"
    "  g.steps.forEach(function(i){var s=S[i],w=Math.max(6,s.ns/top*(mid-60));\n"
    "   at[i]=[x+8+w,f?y0+9:y+7,x+8];if(!f){h+='<g class=\"k\" data-i=\"'+i+'\"><rect x=\"'+(x+8)+"
    "'\" y=\"'+y+'\" width=\"'+w.toFixed(1)+'\" height=\"14\" rx=\"2\" fill=\"'+(s.back?'#f2b8a0':"
    "'#a8c8f0')+'\"/><text x=\"'+(x+12)+'\" y=\"'+(y+11)+'\">'+esc(D.kernels[s.kernel].name)+"
    "' '+us(s.ns)+'</text></g>';y+=17}});\n"
    "  var t=0;g.steps.forEach(function(i){t+=S[i].ns});\n"
    "  h='<g class=\"r\" data-r=\"'+esc(key)+'\"><rect x=\"'+x+'\" y=\"'+y0+'\" width=\"'+(mid-30)+"
    "'\" height=\"'+(y-y0+2)+'\" fill=\"#fff\" fill-opacity=\"0.7\" stroke=\"#ccc\"/><text "
    "x=\"'+(x+4)+'\" y=\"'+(y0+13)"
    "+'\">'+(f?'+ ':'- ')+esc(g.name)+' ('+g.steps.length+', '+us(t)+')</text></g>'+h;y+=8});\n"
    " var e='';D.edges.forEach(function(q){var a=at[q[0]],b=at[q[1]];if(a&&b)e+='<path d=\"M'+a[0]+"
    "' '+a[1]+'C'+(a[0]+40)+' '+a[1]+' '+(b[0]+40)+' '+b[1]+' '+b[0]+' '+b[1]+'\" fill=\"none\" "
    "stroke=\"#888\" stroke-opacity=\"'+(q[1]-q[0]>20?0.1:0.35)+'\" stroke-width=\"'+"
    "Math.min(5,0.5+Math.log2(1+q[2]/4096)/3).toFixed(1)+'\"/>'});\n"
    " var m='',M=D.arena||1,n=Math.max(1,S.length),H=160;D.buffers.forEach(function(b){if(b.kind=="
    "'temp'&&b.last>=0)m+='<rect x=\"'+(20+b.first/n*(W-40)).toFixed(1)+'\" y=\"'+(y+24+H*(b.offset"
    "/M)).toFixed(1)+'\" width=\"'+((b.last-b.first+1)/n*(W-40)).toFixed(1)+'\" height=\"'+Math."
    "max(1,H*b.bytes/M).toFixed(1)+'\" fill=\"#c8e0b0\" stroke=\"#789\" stroke-width=\"0.3\">"
    "<title>'+"
    "b.shape+', '+kb(b.bytes)+' at '+b.offset+', launches '+(b.first+1)+' to "
    "'+(b.last+1)+'</title></rect>'});\n"
    " document.getElementById('map').innerHTML='<svg width=\"'+W+'\" height=\"'+(y+H+40)+'\">'+e+h+"
    "'<text x=\"20\" y=\"'+(y+16)+'\">memory of launches: '+kb(D.arena)+'</text>'+m+'</svg>'}\n"
    "document.getElementById('map').onclick=function(ev){var t=ev.target.closest('.k,.r');\n"
    " if(!t)home();else if(t.dataset.i!==undefined)show(+t.dataset.i);else{var r=t.dataset.r;"
    "folded[r]=!folded[r];draw()}};\n"
    "document.title=D.name;draw();home();\n"
    "</script></body></html>\n";

/* The function of a kernel in the generated source. */
static void tci_report_source(tci_str *out, const char *source, const char *symbol)
{
    const char *at = symbol ? strstr(source, symbol) : NULL;
    while (at && at[strlen(symbol)] != '(') { /* comments name it too */
        at = strstr(at + 1, symbol);
    }
    tci_str text = {0};
    if (at) {
        while (at > source && at[-1] != '\n') {
            at--;
        }
        const char *end = strstr(at, "\n}\n");
        tci_str_add_n(&text, at, end ? (size_t)(end + 3 - at) : strlen(at));
    }
    tci_summary_json_text(out, tci_str_text(&text));
    tci_str_free(&text);
}

/* The text of each kernel, its loop and its source; those of a program that a cache had are made
 * again. */
static void tci_report_kernels(tci_str *out, const tc_program *f)
{
    int n = f->code->n_kernels;
    tci_str *texts = tci_heap_get(sizeof(*texts) * 2 * (size_t)(n + 1)), made = {0};
    bool shown = texts &&
                 tci_compile_show(f->code, f->key_graph, &f->options, texts, texts + n, &made);
    const char *source = shown && made.n ? made.text : tci_code_source(f->code);
    out->failed |= !texts;
    tci_str_add(out, ",\"kernels\":[");
    for (int i = 0; i < n && texts; i++) {
        const tci_code_kernel *k = &f->code->kernels[i];
        tci_str_add(out, i ? ",\n{\"name\":" : "\n{\"name\":");
        tci_summary_json_text(out, k->symbol);
        tci_str_add(out, ",\"note\":");
        tci_summary_json_text(out, k->note);
        tci_str_add(out, ",\"kernel\":");
        tci_summary_json_text(out, tci_str_text(&texts[i]));
        tci_str_add(out, ",\"loop\":");
        tci_summary_json_text(out, tci_str_text(&texts[n + i]));
        tci_str_add(out, ",\"source\":");
        tci_report_source(out, source, k->symbol);
        tci_str_add(out, "}");
        tci_str_free(&texts[i]);
        tci_str_free(&texts[n + i]);
    }
    tci_str_add(out, "]");
    tci_heap_free(texts);
    tci_str_free(&made);
}

static void tci_report_nodes(tci_str *out, const tc_program *f, int step)
{
    const tc_program *owner = f->origins ? f : f->keeper;
    const tci_code_step *s = &f->code->steps[step];
    tci_str_add(out, ",\"nodes\":[");
    for (int i = 0; i < s->n_origins; i++) {
        tci_str text = {0};
        tci_str_printf(&text, "%%%d ", s->origins[i]);
        if (owner->origins && s->origins[i] < owner->n_origins) {
            const tci_origin *o = &owner->origins[s->origins[i]];
            tci_origin_line(&text, o);
            tci_str_add(&text, o->region ? ", " : "");
            tci_origin_region_text(&text, o->region);
        }
        tci_str_add(out, i ? "," : "");
        tci_summary_json_text(out, tci_str_text(&text));
        tci_str_free(&text);
    }
    tci_str_add(out, "]");
}

static void tci_report_step(tci_str *out, const tc_program *f, int t)
{
    const tci_code_step *s = &f->code->steps[t];
    const tci_code_kernel *k = &f->code->kernels[s->kernel];
    const tci_origin *at = tci_origin_of(f, t);
    uint32_t region = tci_origin_region(f, t);
    tci_str line = {0}, name = {0};
    tci_origin_line(&line, at);
    tci_origin_region_text(&name, region);
    tci_str_printf(out,
                   "%s\n{\"kernel\":%d,\"ns\":%.1f,\"bytes\":%lld,\"flops\":%lld,\"back\":%s,"
                   "\"from\":",
                   t ? "," : "", s->kernel, tci_summary_model_ns(k),
                   (long long)tci_dim_hint(k->bytes), (long long)tci_dim_hint(k->flops),
                   at && (at->region & TCI_REGION_BACKWARD) ? "true" : "false");
    tci_summary_json_text(out, tci_str_text(&line));
    tci_str_add(out, ",\"region\":");
    tci_summary_json_text(out, tci_str_text(&name));
    tci_report_nodes(out, f, t);
    tci_str_add(out, ",\"operands\":[");
    for (int o = 0; o < k->n_operands; o++) {
        tci_str_printf(out, "%s{\"buffer\":%d,\"write\":%s}", o ? "," : "", s->operands[o],
                       k->writes[o] ? "true" : "false");
    }
    tci_str_add(out, "]}");
    tci_str_free(&line);
    tci_str_free(&name);
}

/* From the launch that wrote a buffer last to each that reads it. */
static void tci_report_edges(tci_str *out, const tc_program *f)
{
    const tci_code *code = f->code;
    int32_t *writer = tci_heap_get(sizeof(*writer) * (size_t)(code->n_buffers + 1));
    bool any = false;
    out->failed |= !writer;
    tci_str_add(out, ",\n\"edges\":[");
    for (int t = 0; writer && t < code->n_steps; t++) {
        const tci_code_step *s = &code->steps[t];
        const tci_code_kernel *k = &code->kernels[s->kernel];
        for (int pass = 0; pass < 2; pass++) {
            for (int o = 0; o < k->n_operands; o++) {
                int32_t *by = &writer[s->operands[o]];
                if (pass == 0 && !k->writes[o] && *by) {
                    tci_str_printf(out, "%s[%d,%d,%lld]", any ? "," : "", *by - 1, t,
                                   (long long)tci_dim_hint(code->buffers[s->operands[o]].bytes));
                    any = true;
                } else if (pass == 1 && k->writes[o]) {
                    *by = t + 1;
                }
            }
        }
    }
    tci_str_add(out, "]");
    tci_heap_free(writer);
}

static void tci_report_buffers(tci_str *out, const tci_code *code)
{
    static const char *const kinds[] = {"input", "output", "temp", "kept"};
    tci_str_add(out, ",\n\"buffers\":[");
    for (int i = 0; i < code->n_buffers; i++) {
        const tci_code_buffer *b = &code->buffers[i];
        tci_str_printf(out,
                       "%s{\"kind\":\"%s\",\"bytes\":%lld,\"offset\":%lld,\"first\":%d,"
                       "\"last\":%d,\"shape\":\"",
                       i ? "," : "", kinds[b->kind], (long long)tci_dim_hint(b->bytes),
                       (long long)b->offset, b->first, b->last);
        tci_summary_shape(out, b->dtype, b->rank, b->shape);
        tci_str_add(out, "\"}");
    }
    tci_str_add(out, "]");
}

/* Times of the compile phases, or the cache in which the program was found. */
static void tci_report_phases(tci_str *out, const tc_program *f)
{
    const tc_times *t = &f->code->times;
    const struct {
        const char *name;
        int64_t ns;
    } phases[] = {{"key", t->key},     {"rewrite", t->rewrite}, {"plan", t->plan},
                  {"lower", t->lower}, {"emit", t->emit},       {"compiler", t->compiler},
                  {"load", t->load}};
    for (int i = 0; i < TCI_COUNT(phases); i++) {
        tci_str_printf(out, "%s[\"%s\",%lld]", i ? "," : ",\n\"phases\":[", phases[i].name,
                       (long long)phases[i].ns);
    }
    tci_str_printf(out, "],\"found\":\"%s\"",
                   f->from_memory ? "memory"
                   : f->from_disk ? "disk"
                                  : "");
}

TCI_FN void tci_report_html(tci_str *out, const tc_program *f)
{
    static const tc_explain_options screen;
    char hex[33];
    tci_str explain = {0}, history = {0};
    tci_summary_text(&explain, f, &screen);
    tci_str_add(out, tci_report_head);
    tci_str_add(out, "{\"name\":");
    tci_summary_json_text(out, tci_program_name(f, hex));
    tci_str_printf(out, ",\"arena\":%lld,\"explain\":", (long long)f->code->arena_bytes);
    tci_summary_json_text(out, tci_str_text(&explain));
    tci_report_kernels(out, f);
    tci_str_add(out, ",\n\"steps\":[");
    for (int t = 0; t < f->code->n_steps; t++) {
        tci_report_step(out, f, t);
    }
    tci_str_add(out, "]");
    tci_report_edges(out, f);
    tci_report_buffers(out, f->code);
    tci_report_phases(out, f);
    tci_recompile_print(&history, NULL, false);
    tci_str_add(out, ",\n\"history\":");
    tci_summary_json_text(out, tci_str_text(&history));
    tci_str_add(out, "}");
    tci_str_add(out, tci_report_script_1);
    tci_str_add(out, tci_report_script_2);
    tci_str_free(&explain);
    tci_str_free(&history);
}

static tc_status tci_report_write(const tc_program *f, const char *path)
{
    tci_str text = {0}, why = {0};
    tci_os_fresh file;
    tci_report_html(&text, f);
    tc_status status = text.failed ? TC_ERR_MEMORY : TC_OK;
    if (!status) {
        tci_os_fresh_begin_users(&file, path);
        tci_os_fresh_write(&file, text.text, text.n);
        int code = tci_os_fresh_end(&file, true, false);
        status = code ? TC_ERR_IO : TC_OK;
        tci_str_printf(&why, "'%s' cannot be written: %s", path, tci_os_fresh_why(code));
    }
    if (status) {
        tci_program_record((tc_program *)(uintptr_t)f, status, "tc_report",
                           status == TC_ERR_MEMORY ? "out of memory" : tci_str_text(&why));
    }
    tci_str_free(&text);
    tci_str_free(&why);
    return status;
}

TC_API tc_status tc_report(const tc_program *f, const char *path)
{
    if (f && !path) {
        tci_program_record((tc_program *)(uintptr_t)f, TC_ERR_ARGUMENT, "tc_report",
                           "the path is NULL: expected that of a file");
    }
    return f && path ? tci_report_write(f, path) : TC_ERR_ARGUMENT;
}

TCI_FN void tci_report_dump(const tc_program *f, const tc_options *o)
{
    char hex[33];
    tci_str path = {0}, index = {0};
    const char *dir = o->dump_dir && o->dump_dir[0] ? o->dump_dir : "./tc_dump";
    const char *name = tci_program_name(f, hex);
    tci_str file = {0}, shown = {0};
    tci_dump_add_name(&file, name);
    for (const char *c = name; *c; c++) {
        if (*c == '<' || *c == '&') {
            tci_str_add(&shown, *c == '<' ? "&lt;" : "&amp;");
        } else {
            tci_str_printf(&shown, "%c", *c);
        }
    }
    if (name != hex) { /* several programs may have one name */
        tci_hash_hex(f->code->family ? f->code->family->hash : f->code->hash, hex);
        tci_str_printf(&file, "-%.8s", hex);
    }
    tci_str_printf(&path, "%s/%s.html", dir, tci_str_text(&file));
    tci_str_printf(&index, "%s/index.html", dir);
    if (!path.failed && !index.failed && tci_report_write(f, path.text) == TC_OK) {
        FILE *out = fopen(index.text, "ae"); /* a line a program: a page of links */
        if (out) {
            fprintf(out,
                    "<p><a href=\"%s.html\">%s</a>: %d kernels, %d launches on %s, compiled in "
                    "%.1f ms%s</p>\n",
                    tci_str_text(&file), tci_str_text(&shown), f->code->n_kernels, f->code->n_steps,
                    f->code->backend, (double)f->code->times.total / 1e6,
                    f->from_memory ? " (found in memory)" : "");
            fclose(out);
        }
    }
    tci_str_free(&path);
    tci_str_free(&index);
    tci_str_free(&file);
    tci_str_free(&shown);
}

#else

TC_API tc_status tc_report(const tc_program *f, const char *path)
{
    (void)f, (void)path;
    return TC_ERR_UNSUPPORTED;
}

TCI_FN void tci_report_dump(const tc_program *f, const tc_options *o)
{
    (void)f, (void)o;
}

#endif
