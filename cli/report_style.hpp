// How the page of `octavo report` looks: on a phone, on a screen, on paper, light and dark.
#pragma once

namespace octavo::cli {

constexpr const char* report_style = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#55606b;--line:#d7dce1;--bar:#6ea1dc;--a:#b5301f;--b:#1f6fb2;--back:#fff;--card:#f5f7f9}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#a3adb8;--line:#3a434d;--bar:#4f83c2;--a:#ff8a7a;--b:#7db8f0;--back:#14181c;--card:#1d2329}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:72rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;margin:2.25rem 0 .25rem}h3{font-size:.9rem;margin:.5rem 0 .35rem}
p{color:var(--soft);margin:.25rem 0 .75rem;max-width:46rem}p.lead{color:var(--ink);font-size:1.1rem}.bad{color:var(--a)}sub{line-height:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.75rem;margin:1rem 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .75rem;break-inside:avoid}
dt{color:var(--soft);font-size:.8rem}dd{margin:0;font-size:1.35rem;font-weight:600;line-height:1.3}dd small{display:block;font-size:.75rem;font-weight:400;color:var(--soft)}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,15.5rem),1fr));gap:1.25rem 1.5rem}
figure,.card{margin:0;min-width:0}figure{break-inside:avoid}.card figure{margin-bottom:.9rem}.overview{margin-bottom:1.25rem}
figcaption{font-size:.8rem;color:var(--soft);margin-top:.15rem}figcaption b{color:var(--ink);display:block;font-weight:600}
svg{display:block;width:100%}svg *{vector-effect:non-scaling-stroke}
.bar{fill:var(--bar)}.tick{stroke:var(--line);stroke-width:1;fill:none}
.dot{stroke:var(--b);stroke-width:6;stroke-linecap:round}
polyline{fill:none;stroke-width:2}.line0{stroke:var(--a);stroke-dasharray:5 3}.line1{stroke:var(--b)}
.bars{list-style:none;max-width:46rem;margin:0 0 .75rem;padding:0;font-size:.8rem}
.bars li{display:grid;grid-template-columns:1fr auto;column-gap:.75rem;margin-bottom:.35rem;break-inside:avoid}
.bars b{font-weight:600;white-space:nowrap}.bars svg{grid-column:1/-1;height:.5rem}
.plot{position:relative;padding:.6rem 0 .6rem 3.4rem}.plot svg{height:8rem;overflow:visible}.plot.tall svg{height:14rem}
.ticks{position:absolute;top:.6rem;bottom:.6rem;left:0;width:3rem;font-size:.75rem;line-height:1;color:var(--soft)}
.ticks span{position:absolute;right:0;transform:translateY(-50%);white-space:nowrap}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;padding-left:3.4rem;font-size:.8rem}
.name0,.name1{display:flex;align-items:center;gap:.4rem}.name0{color:var(--a)}.name1{color:var(--b)}
.name0:before,.name1:before{content:"";width:1.5rem;border-top:2px solid}.name0:before{border-top-style:dashed}
.histogram{margin-top:.4rem}.histogram svg{height:4.5rem;border-bottom:1px solid var(--soft)}
.axis{display:flex;justify-content:space-between;font-size:.75rem;color:var(--soft)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}th[scope=row]{color:var(--ink);font-weight:400}
th:first-child{text-align:left;padding-left:0}th[scope=row]:first-child{white-space:normal;min-width:11rem}
details{border-top:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer;font-size:.9rem}details[open]>summary{margin-bottom:.75rem}
@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--bar:#6ea1dc;--a:#b5301f;--b:#1f6fb2;--back:#fff;--card:#fff}
@page{margin:14mm}body{max-width:none;padding:0;font-size:10pt}h2,h3,h2+p{break-after:avoid}.bars{font-size:7.5pt}tr{break-inside:avoid}
.scroll{overflow:visible}table{font-size:7.5pt}th,td{padding:.15rem .3rem}.grid{grid-template-columns:repeat(4,minmax(0,1fr));gap:1rem}.tiles{grid-template-columns:repeat(5,minmax(0,1fr))}.tiles dd{font-size:1.1rem}.plot svg{height:6rem}.histogram svg{height:2.5rem}}
)";

}  // namespace octavo::cli
