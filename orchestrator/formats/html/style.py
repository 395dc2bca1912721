"""The style sheet of the pages: system fonts, light and dark by the reader's preference, and print."""

STYLE = """
:root{color-scheme:light dark;--bg:light-dark(#fff,#14171a);--fg:light-dark(#1c2024,#e6e9ec);
--muted:light-dark(#5b6470,#9aa4af);--line:light-dark(#dfe3e8,#2c3238);--card:light-dark(#f7f8fa,#1b1f24);
--warn:light-dark(#7a4d00,#ffcf80)}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 20px 60px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;margin:0}h2{font-size:19px;margin:36px 0 8px}
p{margin:6px 0}.muted,figcaption,caption{color:var(--muted)}
.simulated{color:var(--warn);border:1px solid currentColor;border-radius:8px;padding:6px 12px;margin:14px 0}
code{font:13px ui-monospace,monospace}
code{background:var(--card);border:1px solid var(--line);border-radius:5px;padding:1px 6px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:12px;margin:18px 0}
dl div{display:flex;flex-direction:column;justify-content:space-between;
background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
dt{color:var(--muted);font-size:13px}dd{margin:0;font-size:22px;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;margin:10px 0}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:8px 9px;font-size:13px}
th,td{padding:6px 9px;border-top:1px solid var(--line);text-align:left;vertical-align:top;font-weight:400}
thead th{color:var(--muted);font-size:12.5px;white-space:nowrap}tfoot{font-weight:600}tfoot th{font-weight:600}
.n{text-align:right;white-space:nowrap}
figure{margin:14px 0;border:1px solid var(--line);border-radius:8px;padding:10px 12px}
figcaption{font-size:13px}svg{display:block;width:100%;height:auto}
svg text{fill:var(--muted);font:11.5px system-ui,sans-serif;paint-order:stroke;stroke:var(--bg);stroke-width:3px;
stroke-linejoin:round}svg .name{fill:var(--fg);font-size:13px}
svg .in{fill:#fff;stroke:#000a;stroke-width:2px}
.grid{stroke:var(--line)}.axis{stroke:var(--muted)}.line{fill:none;stroke-width:2}
.starting{opacity:.35}.demand{stroke:var(--fg);stroke-width:1.5}
details>summary{cursor:pointer;margin:8px 0}
@media print{body{max-width:none}figure,.scroll{break-inside:avoid}details{display:block}}
"""
