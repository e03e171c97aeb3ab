// How the page of `octavo report` looks: on a phone, on a screen, on paper, light and dark.
#pragma once

namespace octavo::cli {

constexpr const char* report_style = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#55606b;--line:#d7dce1;--bar:#5b93d3;--over:#d9694a;--dot:#1f6fb2;--bad:#b8330f;--good:#1a7431;--back:#fff;--card:#f5f7f9}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#a3adb8;--line:#3a434d;--bar:#4f83c2;--over:#d4643c;--dot:#6db1f2;--bad:#ff8f66;--good:#5cc57a;--back:#14181c;--card:#1d2329}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:62rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;margin:2.25rem 0 .25rem}h3{font-size:.9rem;margin:1.25rem 0 .35rem}
p{color:var(--soft);margin:.25rem 0 .75rem}.bad{color:var(--bad)}sub{line-height:0}
.verdict{margin:1rem 0;padding:.75rem 1rem;border:1px solid var(--line);border-left:.35rem solid var(--mark);border-radius:.5rem;background:var(--card);break-inside:avoid}
.verdict.good{--mark:var(--good)}.verdict.open{--mark:var(--soft)}.verdict.failed{--mark:var(--bad)}
.verdict h2{display:flex;gap:.6rem;margin:0;color:var(--mark)}.verdict h2 svg{flex:none;width:1.5rem;height:1.5rem;margin-top:.1rem}
.verdict path{fill:none;stroke:currentColor;stroke-width:3;stroke-linecap:round;stroke-linejoin:round}.verdict>:last-child{margin-bottom:0}
.verdict ul{margin:.5rem 0;padding:0;list-style:none}.verdict li{margin:.4rem 0}
code{display:inline-block;max-width:100%;max-height:9rem;overflow:auto;vertical-align:top;font:.85rem/1.5 ui-monospace,monospace;padding:.05rem .4rem;border:1px solid var(--line);border-radius:.3rem;background:var(--back);user-select:all;-webkit-user-select:all}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.75rem;margin:1rem 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .75rem;break-inside:avoid}
dt{color:var(--soft);font-size:.8rem}dd{margin:0;font-size:1.35rem;font-weight:600;line-height:1.3}dd small{display:block;font-size:.75rem;font-weight:400;color:var(--soft)}
figure,.card{margin:0;min-width:0}figure{break-inside:avoid}.card figure{margin-bottom:.9rem}
figcaption{font-size:.8rem;color:var(--soft)}figcaption b{color:var(--ink);font-weight:600}figcaption span{white-space:nowrap}
svg{display:block;width:100%}svg *{vector-effect:non-scaling-stroke}.symbols{display:none}
.bar{fill:var(--bar)}.within{fill:var(--dot)}.above{fill:var(--bad)}.bar.above{fill:var(--over)}.tick{stroke:var(--line)}.bound{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3}
.line0,.line1{fill:none;stroke-width:2}.line0{stroke:var(--soft);stroke-dasharray:5 3}polyline:only-child{stroke-dasharray:none}.line1{stroke:var(--dot)}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.25rem;font-size:.85rem;color:var(--ink)}.legend span{display:flex;align-items:center;gap:.4rem}.legend svg{width:1.5rem;height:.9rem}
.facets{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem;align-items:end;font-size:.75rem;padding-left:calc(var(--left) + .3rem)}
.plot{position:relative;padding:.6rem 0 .4rem}.plot svg{height:6.5rem;overflow:visible}.bounded{padding-right:calc(var(--right) + .3rem)}.bounded .plot{padding-top:1.3rem}.bounded .axis{min-height:1.2rem}
.ticks,.words{position:absolute;inset:.6rem auto .4rem;font-size:.75rem;line-height:1;pointer-events:none}
.bounded .ticks,.bounded .words{top:1.3rem}.ticks{display:none;left:calc(-1*var(--left) - .3rem);width:var(--left);color:var(--soft)}.facets>:nth-child(2n+1) .ticks{display:block}
.ticks span,.words span{position:absolute;white-space:nowrap}.ticks span{right:0;transform:translateY(-50%)}
.words{left:0;right:0}.limit{left:100%;margin-left:.3rem;transform:translateY(-50%)}
.note{max-width:max(100%,5.5rem);overflow:hidden;text-overflow:ellipsis;padding:.1rem .15rem;line-height:1;background:var(--back);transform:translate(var(--back-by),calc(-100% - .25rem))}
.bars{list-style:none;margin:0 0 .75rem;padding:0;font-size:.8rem}
.bars li{display:grid;grid-template-columns:1fr auto;column-gap:.75rem;margin-bottom:.35rem;break-inside:avoid}
.bars .bound{stroke-dasharray:none}.bars .limit{grid-column:1/-1;justify-self:start;margin-top:-.3rem;transform:translateX(var(--back-by));white-space:nowrap}.bars b{font-weight:600;white-space:nowrap}.bars svg{grid-column:1/-1;height:.5rem;overflow:visible}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,12rem),1fr));gap:1.25rem 1.5rem}
.histogram{margin-top:.4rem}.histogram svg{height:4.5rem;border-bottom:1px solid var(--soft)}
.axis{display:flex;justify-content:space-between;font-size:.75rem;color:var(--soft)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.85rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}th[scope=row]{color:var(--ink);font-weight:400}
th:first-child{text-align:left;padding-left:0}th[scope=row]:first-child{white-space:normal;min-width:11rem}
details{border-top:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer;font-size:.9rem}details[open]>summary{margin-bottom:.75rem}
@media print,(min-width:48rem){.facets{grid-template-columns:repeat(4,minmax(0,1fr));gap:1.25rem 1rem}.facets>:nth-child(2n+1) .ticks{display:none}.facets>:nth-child(4n+1) .ticks{display:block}.plot svg{height:8rem}}
@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--bar:#5b93d3;--over:#d9694a;--dot:#1f6fb2;--bad:#b8330f;--good:#1a7431;--back:#fff;--card:#fff}
@page{margin:14mm}body{max-width:none;padding:0;font-size:10pt}h2,h3,h2+p,.legend{break-after:avoid}.bars{font-size:7.5pt}tr{break-inside:avoid}code{max-height:none}
.scroll{overflow:visible}table{font-size:7.5pt}th,td{padding:.15rem .3rem}.grid{grid-template-columns:repeat(4,minmax(0,1fr));gap:1rem}.tiles{grid-template-columns:repeat(5,minmax(0,1fr))}.tiles dd{font-size:1.1rem}.histogram svg{height:2.5rem}.plot svg{height:6rem}}
)";

}  // namespace octavo::cli
