"""The page's style: one text, put into the page, for light and for dark."""

STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1a2230;--soft:#5b6678;--faint:#98a2b3;
--edge:#e2e6ec;--head:#f0f2f6;--accent:#0f6b74;--ok:#2a8c8f;--retry:#e0a128;--dead:#cc3f39;
--gone:#7d2f63;--lost:#8791a8;--p50:#2a8c8f;--p90:#e0a128;--p99:#cc3f39;
--shadow:0 1px 2px #1018280d}
@media(prefers-color-scheme:dark){:root{--bg:#10141b;--card:#181e27;--ink:#e7ebf1;--soft:#a3afc0;
--faint:#67748a;--edge:#2a3342;--head:#1f2733;--accent:#5fc7cb;--ok:#4bb3b3;--retry:#efb94f;
--dead:#f2726b;--gone:#cf82b4;--lost:#8c97ad;--p50:#4bb3b3;--p90:#efb94f;--p99:#f2726b;
--shadow:none}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:3.5rem}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Helvetica Neue",sans-serif;-webkit-text-size-adjust:100%}
header,main,footer{max-width:1280px;margin:0 auto;padding:0 24px}
header{padding-top:32px;padding-bottom:8px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:18px;margin:0;letter-spacing:-.005em}
h3{font-size:14px;margin:20px 0 8px;color:var(--soft);font-weight:600}
p{margin:6px 0}
.about{color:var(--soft);margin:0}
.about b{color:var(--ink);font-weight:600;overflow-wrap:anywhere}
nav{position:sticky;top:0;z-index:3;background:var(--bg);border-bottom:1px solid var(--edge)}
nav ul{max-width:1280px;margin:0 auto;padding:0 24px;display:flex;gap:20px;list-style:none;
overflow-x:auto}
nav a{display:block;padding:10px 0;color:var(--soft);text-decoration:none;white-space:nowrap;
font-size:14px}
nav a:hover,nav a:focus-visible{color:var(--accent)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--accent);
outline-offset:2px;border-radius:4px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin:20px 0}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:14px 16px;
box-shadow:var(--shadow)}
.tile dt{color:var(--soft);font-size:13px;margin:0}
.tile dd{margin:2px 0 0;font-size:26px;line-height:1.2;font-weight:650;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.tile dd small{display:block;font-size:12.5px;font-weight:400;color:var(--soft);letter-spacing:0;
margin-top:3px;line-height:1.35}
.tile.bad dd{color:var(--dead)}
section{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:20px 22px;
margin:16px 0;box-shadow:var(--shadow)}
section>p{color:var(--soft);max-width:75ch;margin:2px 0 14px}
figure{margin:16px 0 0}
figcaption{display:flex;flex-wrap:wrap;gap:4px 20px;justify-content:space-between;
align-items:baseline;font-weight:600;font-size:14px;margin-bottom:6px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:0;padding:0;
font-weight:400;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.plot{overflow-x:auto}
.plot svg{display:block;width:100%;min-width:620px;height:auto}
svg .grid{stroke:var(--edge);stroke-width:1}
svg .tick{stroke:var(--faint);stroke-width:1}
svg .axis{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
svg .area{opacity:.16;stroke:none}
svg .hover{fill:transparent}
svg .hover:hover,svg g:hover rect{fill-opacity:.75}
svg .hover:hover{fill:var(--ink);fill-opacity:.07}
.ok{fill:var(--ok);background:var(--ok)}.retry{fill:var(--retry);background:var(--retry)}
.dead{fill:var(--dead);background:var(--dead)}.gone{fill:var(--gone);background:var(--gone)}
.lost{fill:var(--lost);background:var(--lost)}.p50{fill:var(--p50);background:var(--p50)}
.p90{fill:var(--p90);background:var(--p90)}.p99{fill:var(--p99);background:var(--p99)}
.line.dead{stroke:var(--dead)}.line.p50{stroke:var(--p50)}.line.p90{stroke:var(--p90)}
.line.p99{stroke:var(--p99)}
.spread{vertical-align:middle}
.spread .rail{stroke:var(--faint);stroke-width:1.5}
.spread .body{fill:var(--edge)}
.scroll{max-height:460px;overflow:auto;border:1px solid var(--edge);border-radius:8px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:13.5px;
font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:7px 10px;border-bottom:1px solid var(--edge);vertical-align:top}
tbody tr:last-child td{border-bottom:0}
th{position:sticky;top:0;background:var(--head);font-weight:600;font-size:12.5px;
color:var(--soft);white-space:nowrap;z-index:1}
.count,.share,.rate,.seconds{text-align:right;white-space:nowrap}
td.time{white-space:nowrap;color:var(--soft)}
td.text{overflow-wrap:break-word;min-width:5em;max-width:34em}
tbody tr:hover td{background:var(--head)}
.none,.zero{color:var(--faint)}
.empty{color:var(--soft);padding:18px 12px;text-align:center}
code,.id{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
overflow-wrap:anywhere}
td.text>code{display:block;min-width:12em}
.pattern{min-width:22em;max-width:46em}
.pattern code{display:block}
.pattern small{color:var(--soft);display:block;margin-top:4px}
.meter{height:5px;border-radius:3px;background:var(--edge);margin-top:6px;overflow:hidden}
.meter i{display:block;height:100%;border-radius:3px}
.mix{display:flex;height:8px;min-width:110px;border-radius:3px;overflow:hidden;margin-top:7px;
background:var(--edge)}
details{margin-top:5px;font-size:12.5px;color:var(--soft)}
summary{cursor:pointer;width:max-content;max-width:100%}
.note{font-size:13px;color:var(--soft);margin:8px 2px 0}
.warn{border-left:4px solid var(--retry)}
.warn ul{margin:6px 0 0;padding-left:20px;font-size:13.5px}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
footer{color:var(--soft);font-size:13px;padding-bottom:48px}
@media(max-width:640px){header,main,footer,nav ul{padding-left:14px;padding-right:14px}
section{padding:16px 14px}}
@media print{nav{display:none}.scroll{max-height:none;overflow:visible}body{background:#fff}
section,.tile{box-shadow:none;break-inside:avoid}}
"""
