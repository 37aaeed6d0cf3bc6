"""The page in a real browser: filters, cells, listings, charts, keys, a phone's width, the theme, print, and
attacks."""

import base64
import dataclasses
import importlib.util
import itertools
import shutil
import time

import pytest

from ptxdiff.reports import html
from ptxdiff.reports.highlight import listing, runs
from tests.support.reports import hostile, synthetic

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = [
    name
    for name, found in (
        ("selenium", importlib.util.find_spec("selenium")),
        ("chromium", CHROMIUM),
        ("chromedriver", DRIVER),
    )
    if not found
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the browser tests need {' and '.join(MISSING)}")

RED = ("rcp", "asm.rn")
LEDGER = [{"form": f"form.{n}", "status": "hardware"} for n in range(50)]
# Half the targets and some of the cases: a browser takes a second for each opening of the whole catalogue.
TARGETS = ("sm_75", "sm_86", "sm_89", "sm_90a", "sm_100a")
CASES = 5


def fails(r):
    wrong = (
        (r.key.case, r.key.variant) == RED and r.key.target in ("sm_90a", "sm_100a") and r.key.backend != "assembler"
    )
    return synthetic.failing(r) if wrong else r


def far(r):
    """One variant passes with a small error and a permitted flush, both far from its bound."""
    mine = (r.key.case, r.key.variant, r.key.backend) == ("rcp", "asm.approx", "emulator")
    return dataclasses.replace(r, ulps={"0": 4000, "1025..2048": 40, "4194305..8388608": 56}) if mine else r


def with_map(r):
    """Ranges above the map, and a map of the failing inputs."""
    grid = synthetic.grid(lambda a, b: a >= 0x80 and b < 0x10) if r.verdict == "fail" else None
    return dataclasses.replace(r, grid=grid, ranges={str(e): (-1, 1) for e in range(-5, 5)})


FAMILIES = ("fast math", "fast math", "conversions", "conversions", "packed")


def in_families(run):
    """The run with its cases in three families, of which one fails, and with a target on which nothing ran."""
    cases = {n: dataclasses.replace(c, family=f) for (n, c), f in zip(run.cases.items(), FAMILIES, strict=True)}
    missing = [
        dataclasses.replace(r, key=dataclasses.replace(r.key, target="device"), verdict="not run", evidence="none")
        for r in run.results
        if r.key.target == "sm_90a" and r.key.backend == "gpu"
    ]
    return dataclasses.replace(run, cases=cases, results=[*run.results, *missing])


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    base = synthetic.catalogue(CASES, TARGETS, per_cell=5)
    red = dataclasses.replace(base, results=[fails(r) for r in base.results])
    mapped = dataclasses.replace(red, results=[with_map(r) for r in red.results])
    odd = {
        h: dataclasses.replace(t, text={"ptx": ODD_PTX, "sass": ODD_SASS}.get(t.kind, t.text))
        for h, t in red.texts.items()
    }
    planted = [hostile.run(started=f"2026-03-0{n}T00:00:00Z") for n in (1, 2)]
    return {
        "red": html.write([red], folder / "red.html", conformance={"rcp.rn.f32": "hardware", "add.f32": "hardware"}),
        "families": html.write([in_families(red)], folder / "families.html"),
        "wide": html.write([dataclasses.replace(base, results=[far(r) for r in base.results])], folder / "wide.html"),
        "colours": html.write([dataclasses.replace(red, texts=odd)], folder / "colours.html"),
        "mapped": html.write([mapped], folder / "mapped.html"),
        "nights": html.write(synthetic.nights(synthetic.catalogue(7, TARGETS, per_cell=5)), folder / "nights.html"),
        "large": html.write([synthetic.catalogue(25, TARGETS, per_cell=2)], folder / "large.html", conformance=LEDGER),
        "hostile": html.write(planted, folder / "hostile.html", conformance=[{hostile.EVERYTHING: hostile.EVERYTHING}]),
    }


@pytest.fixture(scope="module")
def driver():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


class Browser:
    """The driver, with the actions that the tests need."""

    def __init__(self, driver, pages):
        self.driver, self.pages = driver, pages

    def open(self, page, fragment="", *, width=1400, height=1000, script=True, policy=True, **media):
        self.resize(width, height)
        self.command("Emulation.setScriptExecutionDisabled", value=not script)
        self.command("Page.setBypassCSP", enabled=not policy)
        self.media(**media)
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.visit(f"{self.pages[page].as_uri()}{fragment}")

    def visit(self, address):
        """Load the address. On a busy machine the driver comes back before the page's scripts ran."""
        self.driver.get(address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'", "the page is loaded")

    def resize(self, width, height):
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def media(self, *, kind="", **preferences):
        """Set what the page's media queries see. Nothing moves: an animation is drawn sixty times a second."""
        preferences = {"reduced_motion": "reduce", **preferences}
        features = [{"name": f"prefers-{n.replace('_', '-')}", "value": v} for n, v in preferences.items()]
        self.command("Emulation.setEmulatedMedia", features=features, media=kind)

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def wait(self, code, message):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if found := self.js(f"return {code}"):
                return found
            time.sleep(0.05)
        pytest.fail(f"{message}: `{code}` did not come true; log: {self.log()}")

    def keys(self, *keys, into="body"):
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, into).send_keys(*keys)

    def press(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def visible(self, selector, value="e"):
        return self.js(
            f"return [...document.querySelectorAll({selector!r})].filter(e => e.checkVisibility()).map(e => {value})"
        )

    def shown(self):
        return self.visible(".matrix tr[data-case]", "e.dataset.case + '::' + e.dataset.variant")

    def log(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def browser(driver, pages):
    found = Browser(driver, pages)
    yield found
    found.command("Emulation.setScriptExecutionDisabled", value=False)


def test_search_narrows_the_matrix_and_the_address_keeps_it(browser):
    browser.open("red")
    assert len(browser.shown()) == 4 * CASES
    browser.keys("rcp asm.rn", into="#find")
    assert browser.shown() == ["rcp::asm.rn"]
    address = browser.driver.current_url
    browser.driver.get("about:blank")
    browser.visit(address)
    assert browser.shown() == ["rcp::asm.rn"]
    browser.js("document.querySelector('.filter [type=reset]').click()")
    browser.wait(f"document.getElementById('shown').textContent === '{4 * CASES} variants'", "reset")
    browser.keys("e2m1x2.f32", into="#find")  # an instruction, not a name
    assert {name.split("::")[0] for name in browser.shown()} == {"cvt_e2m1x2"}


def test_filters_by_verdict_target_and_evidence(browser):
    browser.open("red")
    browser.js("for (const b of document.querySelectorAll('[name=state]')) if (b.value !== 'fail') b.click()")
    assert browser.shown() == ["rcp::asm.rn"]
    reset = "document.querySelector('.filter [type=reset]').click()"
    all_shown = f"document.getElementById('shown').textContent === '{4 * CASES} variants'"
    browser.js(reset)
    browser.wait(all_shown, "reset")
    browser.js("target.value = 'sm_75'; target.dispatchEvent(new Event('input', {bubbles: true}))")
    assert len(browser.visible(".matrix thead th")) == 3
    browser.js(reset)
    browser.wait("document.querySelectorAll('.matrix thead th').length > 3", "reset")
    browser.js("evidence.value = 'hardware'; evidence.dispatchEvent(new Event('input', {bubbles: true}))")
    assert (
        len(browser.shown()) == 4 * CASES - 5
    )  # without the four of cvt_e2m1x2, which the device lacks, and the wrong one


def test_a_cell_shows_its_packs_and_shapes_and_its_link_opens_it_again(browser):
    browser.open("red")
    browser.js("document.querySelector('[id=\"cell--rcp--asm.rn--sm_90a\"] a').click()")
    text = browser.wait("document.querySelector('tr.opened table')?.closest('tr').innerText", "the cell opens")
    assert "fail, edges/1, 1 of 4,096 differ" in text
    assert "pack 4" in text
    assert "gpu" in text
    assert "--ptx-replay=" in text
    assert browser.driver.current_url.endswith("#cell--rcp--asm.rn--sm_90a")
    browser.open("red", "#cell--rcp--asm.rn--sm_90a")
    browser.wait("document.querySelector('tr.opened table')", "the link opens the cell")
    from selenium.webdriver.common.keys import Keys

    browser.press(Keys.ESCAPE)
    assert browser.js("return document.querySelectorAll('tr.opened').length") == 0


def test_keys_move_through_the_matrix_and_the_failures(browser):
    from selenium.webdriver.common.keys import Keys

    focus = "document.activeElement.closest('td')?.id"
    browser.open("red")
    browser.keys("n")
    assert browser.js(f"return {focus}") == "cell--rcp--asm.rn--sm_90a"
    browser.press("n")
    assert browser.js(f"return {focus}") == "cell--rcp--asm.rn--sm_100a"
    browser.press("p", Keys.ARROW_LEFT)
    assert browser.js(f"return {focus}") == "cell--rcp--asm.rn--sm_89"
    browser.press(Keys.ARROW_DOWN)
    assert browser.js(f"return {focus}") == "cell--rcp--asm.packed--sm_89"
    browser.press(Keys.ENTER)
    browser.wait("document.querySelector('tr.opened table')", "Enter opens the cell")
    browser.press("/")
    assert browser.js("return document.activeElement.id") == "find"


def focused(browser):
    return browser.js(
        "const e = document.activeElement; return e.closest('td')?.id || e.id || e.getAttribute('href') || e.tagName"
    )


def test_families_in_which_nothing_fails_are_folded_until_somebody_searches(browser):
    browser.open("families")
    assert {name.split("::")[0] for name in browser.shown()} == {"rcp", "ex2"}
    counted = "return document.getElementById('shown').textContent"
    assert browser.js(counted) == f"{4 * CASES} variants, 12 in folded families"
    assert "3 of 4 fail" not in browser.js("return document.querySelector('.matrix').innerText")
    assert browser.visible(".heading [aria-expanded]", "e.innerText.trim() + e.getAttribute('aria-expanded')") == [
        "conversionsfalse", "fast mathtrue", "packedfalse"
    ]  # fmt: skip
    browser.js("document.getElementById('family--packed').click()")
    assert len(browser.shown()) == 12
    browser.js("document.getElementById('unfold').click()")
    assert len(browser.shown()) == 4 * CASES
    browser.open("families")
    browser.keys("e2m1", into="#find")
    assert {name.split("::")[0] for name in browser.shown()} == {"cvt_e2m1x2"}
    assert browser.visible(".heading th", "e.innerText.split('\\n')[0].trim()") == ["conversions 2 cases, 8 variants"]
    browser.open("families", "#cell--cvt_e4m3--triton--sm_75")
    browser.wait("document.querySelector('tr.opened table')", "a link into a folded family opens it")


def test_a_target_on_which_nothing_ran_is_no_column(browser):
    browser.open("families")
    assert browser.visible(".matrix thead th", "e.dataset.target || ''")[2:] == list(TARGETS)
    assert "Nothing ran on device" in browser.js("return document.querySelector('#matrix').innerText")
    assert "device" in browser.js("return document.querySelector('#not-run').innerText")


def test_the_matrix_is_one_tab_stop_with_arrow_keys_inside(browser):
    from selenium.webdriver.common.keys import Keys

    browser.open("families")
    stops = "return [...document.querySelectorAll('.grid, .grid *')].filter((e) => e.tabIndex === 0).length"
    assert browser.js(stops) == 1
    browser.js("document.getElementById('unfold').focus()")
    browser.press(Keys.TAB)
    assert focused(browser) == "family--conversions"
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert focused(browser) == "cell--rcp--asm.approx--sm_75"
    browser.press(Keys.END)
    assert focused(browser) == "cell--rcp--asm.approx--sm_100a"
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.HOME)
    assert focused(browser).startswith("cell--rcp--asm.rn--sm_75")
    browser.press(Keys.ARROW_UP, Keys.HOME)
    assert focused(browser) == "#case--rcp"
    browser.press(Keys.ARROW_DOWN)  # the next case of the column of names
    assert focused(browser) == "#case--ex2"
    browser.press(Keys.CONTROL, Keys.END)
    assert browser.js(stops) == 1
    browser.js("document.getElementById('family--packed').focus()")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.js("return document.getElementById('family--packed').getAttribute('aria-expanded')") == "true"
    browser.press(Keys.ARROW_LEFT)
    assert browser.js("return document.getElementById('family--packed').getAttribute('aria-expanded')") == "false"
    browser.press(Keys.TAB)
    assert browser.js("return document.activeElement.closest('.grid')") is None
    # After a filter has hidden the stop, another cell is the stop.
    browser.keys("rcp asm.rn", into="#find")
    assert browser.js(stops) == 1
    assert browser.js("return document.querySelector('.grid [tabindex=\"0\"]').checkVisibility()")


WIDTHS = "return [...document.querySelectorAll('.matrix > thead th')].map((e) => e.offsetWidth)"


@pytest.mark.parametrize("width", [390, 1400])
def test_an_opened_cell_does_not_change_the_width_of_the_table(browser, width):
    browser.open("red", width=width)
    before = browser.js(WIDTHS)
    browser.js("document.querySelector('[id=\"cell--rcp--asm.rn--sm_90a\"] a').click()")
    browser.wait("document.querySelector('tr.opened table')", "the cell opens")
    assert browser.js(WIDTHS) == before
    inside = "const d = document.querySelector('tr.opened > td > div').getBoundingClientRect()"
    assert browser.js(f"{inside}; return d.width > 250 && d.left >= 0 && d.right <= innerWidth")


@pytest.mark.parametrize("width", [390, 1400])
def test_targets_stay_in_view_while_the_matrix_scrolls(browser, width):
    browser.open("red", width=width, height=500)
    browser.js("document.querySelector('tr[data-case=u8_to_i32_max] a, .matrix tr:last-child a').scrollIntoView()")
    browser.js("document.querySelector('.matrix tbody tr:last-child td a').scrollIntoView({block: 'nearest'})")
    time.sleep(0.2)
    top, bottom, page = browser.js(
        "const r = document.querySelectorAll('.matrix > thead th')[2].getBoundingClientRect();"
        "return [r.top, r.bottom, document.querySelector('.top').offsetHeight]"
    )
    assert page - 1 <= top < bottom < 500
    # The header itself is what is seen there, and no cell shows through it.
    assert browser.js(
        "const r = document.querySelectorAll('.matrix > thead th')[2].getBoundingClientRect();"
        "return document.elementFromPoint(r.left + 5, r.top + 5).closest('thead') !== null"
    )


def test_a_command_is_copied_whole(browser):
    browser.open("red", "#failures")
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    command = browser.js("return document.querySelector('.failure .repeat code').textContent")
    assert command.startswith("pytest cases/rcp.py --ptx-replay=v1.")
    browser.js("document.querySelector('.failure .repeat .copy').focus()")
    from selenium.webdriver.common.keys import Keys

    browser.press(Keys.ENTER)
    browser.wait("document.querySelector('.failure .copy').textContent === 'Copied'", "the command is copied")
    assert browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == command
    browser.open("red", script=False)
    assert browser.visible(".copy") == []
    assert browser.visible(".failure .repeat code", "e.textContent")[0] == command


def test_a_case_begins_with_its_failures_and_its_source_follows(browser):
    browser.open("red", "#case--rcp")
    heads = browser.visible("#case--rcp h4", "e.textContent")
    assert heads.index("Failures") < heads.index("As written") < heads.index("Codes compared")
    assert browser.visible("#case--rcp .links .repeat code", "e.textContent")[0].startswith("pytest ")


LISTINGS = "[...document.querySelectorAll('#case--rcp .listing')]"
CHOOSE = """
for (const s of document.querySelectorAll(arguments[0])) {
  s.selectedIndex = arguments[1] < 0 ? s.options.length - 1 : arguments[1];
  s.dispatchEvent(new Event("change"));
}
"""


def test_ptx_and_sass_are_side_by_side_with_our_asm_marked(browser):
    browser.open("red", "#case--rcp")
    browser.wait("document.querySelectorAll('.listing').length >= 2", "the listings")
    ours = browser.js(f"return {LISTINGS}.slice(0, 2).map(l => l.querySelectorAll('.ours').length)")
    assert all(n > 0 for n in ours)
    browser.js(f"{LISTINGS}[0].querySelector('.ours').dispatchEvent(new Event('pointerover', {{bubbles: true}}))")
    assert browser.js(f"return {LISTINGS}[1].querySelectorAll('.same').length") >= 1
    browser.js(CHOOSE, "#case--rcp .controls label:nth-of-type(2) select", len(TARGETS) - 1)
    assert "differ" in browser.js(f"return {LISTINGS}[1].closest('figure').innerText")
    assert browser.log() == []


ODD_PTX = """
@!%p1 bra $L__BB0_1;   .reg .b8 byte0; mov.b32 %r1, 0f3F800000; // note /* still */
é → ü 0x 0xffU 1.5e-3 a.x b.xyz /* open
mov.b32 %é1, ßx; café: é5: %r٣, 𝒳y
/* closed */ cvt.rn.satfinite.e2m1x2.f32 b0, $1, $$L_2; "text ; here" ;; x: y:: %r1
@ "unended
{mov.b64 {%r1,%r2}, %rd3;}
ld.shared::cluster.v4.b32 {%r1, %r2, _, %r3}, [%rd1+16];
"""
ODD_SASS = """
        /*0000*/                   @!UP0 LDG.E.128.CONSTANT R0, desc[UR4][R2.64+-0x10] ;
        /*0010*/                   FSETP.GEU.AND P0, PT, |R2|, 1.175494350822287508e-38, PT ;
.L_x_1:
        /*0020*/                   BRA `(.L_x_1) ;
        /*0030*/                   S2R R1, SR_TID.X ; /* 0x1 */
        /*0040*/                   é lower Rß5 R2D2 -INF +QNAN c[0x0][0x160] ;
"""


def test_the_page_colours_lines_as_python_does(browser):
    """The expressions are the same; that both run them alike is what is tested."""
    browser.open("colours", "#case--rcp")
    browser.wait("document.querySelectorAll('#case--rcp .listing').length >= 2", "the listings")
    found = browser.js(
        "return [...document.querySelectorAll('#case--rcp .listing')].map((l) => [...l.children].map((row) =>"
        " [...row.childNodes].slice(1).map((n) => [(n.className || '').replace('x-', ''), n.textContent])))"
    )
    shown = listing(ODD_PTX, ODD_SASS)
    for rows, lines, language in zip(found, (shown.ptx, shown.sass), ("ptx", "sass"), strict=True):
        assert rows == [[list(run) for run in runs(line.text, language)] for line in lines]
        assert len({name for row in rows for name, _ in row}) > 5
    assert browser.log() == []


def test_charts_are_drawn_without_eval_and_without_a_fault(browser):
    browser.open("nights", "#case--ex2")
    browser.wait("document.querySelector('[id=\"case--ex2--ulps-0\"] svg')", "the histogram")
    browser.wait("document.querySelector('[id=\"case--ex2--trend-ulp\"] svg')", "the trend")
    browser.js("const d = document.querySelector('details.timed[data-case=rcp]'); d.open = true")
    browser.wait("document.querySelector('[id=\"case--rcp--speed\"] svg')", "the chart of speed")
    assert browser.log() == []
    named = "[...document.querySelectorAll('.chart:not([hidden]) .view')]"
    views = browser.wait(f"{named}.map((e) => [e.getAttribute('role'), e.getAttribute('aria-label')])", "charts")
    assert {role for role, _ in views} == {"img"}
    assert all(label and label != "chart" for _, label in views)
    overlapping = """
    const boxes = [...document.querySelectorAll('.chart .role-axis-label')].map((g) =>
      [...g.querySelectorAll('text')].filter((t) => t.textContent && getComputedStyle(t).opacity !== '0')
        .map((t) => t.getBoundingClientRect()));
    return boxes.flatMap((b) => b.slice(1).filter((r, n) => r.left < b[n].right && r.right > b[n].left
      && r.top < b[n].bottom && r.bottom > b[n].top)).length;
    """
    assert browser.js("return document.querySelectorAll('.chart .role-axis-label text').length") > 10
    assert browser.js(overlapping) == 0


def test_a_small_error_is_seen_beside_a_flush(browser):
    """A bar of 1025 to 2048 ulp lies well apart from 0 and from one of 2^23, within an axis of all three."""
    browser.open("wide", "#case--rcp")
    browser.wait("document.querySelector('[id=\"case--rcp--ulps-0\"] svg')", "the histogram")
    bars = browser.js(
        "return [...document.querySelectorAll('[id=\"case--rcp--ulps-0\"] .mark-rect path')].map((p) =>"
        " { const r = p.getBoundingClientRect(); return [r.left, r.right, r.height, p.getAttribute('fill')]; })"
    )
    band, *bars = sorted(bars, key=lambda b: b[3] != "var(--pass)")
    assert band[3] == "var(--pass)"
    bars = sorted(bars)
    assert len(bars) == 3
    whole = bars[2][1] - bars[0][0]
    for (_, end, _, _), (start, _, _, _) in itertools.pairwise(bars):
        assert start - end > whole / 6
    assert all(right - left > 3 and height > 3 for left, right, height, _ in bars)
    assert band[0] <= bars[0][0] + 1
    assert band[1] < bars[1][0]
    assert {b[3] for b in bars} == {"var(--series-1)"}  # all of them pass


def test_all_changes_are_on_the_first_screen(browser):
    browser.open("nights", width=390, height=844)
    for width, height in ((390, 844), (1280, 800)):
        browser.resize(width, height)
        inside = "e.getBoundingClientRect().bottom <= innerHeight"
        assert browser.visible("#changed .change", inside) == [True] * len(synthetic.PLANTED), width
        assert browser.visible("h1", inside) == [True], width


def test_a_link_to_a_map_stays_on_it_while_charts_above_are_drawn(browser):
    browser.open("mapped", "#map--rcp--asm.rn")
    browser.wait("document.querySelectorAll('#case--rcp .chart svg').length > 1", "the charts of the case are drawn")
    top = "Math.round(document.getElementById('map--rcp--asm.rn').getBoundingClientRect().top)"
    browser.wait(f"{top} >= 0 && {top} < 200", "the map is at the top of the screen")
    for scheme in ("light", "dark"):
        browser.media(color_scheme=scheme)
        ink, ground = browser.js(
            "return ['.ink', '.ground'].map((s) => getComputedStyle(document.querySelector('.failing ' + s)).fill)"
        )
        assert ink != ground, scheme
    assert browser.log() == []


def test_a_link_into_a_closed_case_opens_it(browser):
    browser.open("nights", "#case--tanh")
    browser.wait("document.getElementById('case--tanh').open", "the link opens the case")


def test_without_scripts_verdict_matrix_and_failures_are_there(browser):
    browser.open("red", script=False)
    # The page's scripts are off; the driver's own still run.
    assert browser.js("return document.documentElement.classList.contains('js')") is False
    text = browser.js("return document.body.innerText")
    assert "1 variant gives wrong bits: rcp::asm.rn" in text
    assert "repeat    pytest" in text
    assert browser.js("return document.querySelector('.filter').checkVisibility()") is False
    assert browser.js("return document.querySelector('.matrix').checkVisibility()") is True


def too_wide(browser, width, settling=0.5):
    """The width of the page with everything open, if that is more than the window's; else None."""
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true")
    time.sleep(settling)
    found = browser.js("return document.documentElement.scrollWidth")
    return found if found > width else None


PAGES = ("red", "nights", "hostile")


@pytest.mark.parametrize("page", PAGES)
def test_only_tables_and_listings_scroll_sideways(browser, page):
    browser.open(page, width=360)
    assert too_wide(browser, 360) is None
    browser.resize(1400, 1000)
    assert too_wide(browser, 1400, settling=0.2) is None


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [768, 1400])
def test_a_page_opened_at_another_width_does_not_scroll_sideways(browser, page, width):
    """Slow, because each opening takes seconds: the quick test opens pages on the narrowest window and widens it."""
    browser.open(page, width=width)
    assert too_wide(browser, width) is None


CONTRAST = """
const parse = (c) => c.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).map((e) => {
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
});
"""


TEXTS = (
    ".state", ".matrix td .w", ".matrix td small", ".heading small", ".heading .sum", ".heading button", ".idle",
    ".sentence", ".detail", ".word", ".repeat code", ".repeat .of", ".copy", "a", "pre span", "th", "dt", "dd",
)  # fmt: skip


def test_text_is_readable_in_light_and_dark(browser):
    browser.open("families", "#case--rcp")
    grounds = set()
    for scheme in ("light", "dark"):
        browser.media(color_scheme=scheme)
        grounds.add(browser.js("return getComputedStyle(document.body).backgroundColor"))
        for selector in TEXTS:
            found = browser.js(CONTRAST, selector)
            assert found, (scheme, selector)
            assert min(found) >= 4.5, (scheme, selector)  # WCAG 2.2, 1.4.3
    assert len(grounds) == 2


def test_dark_follows_the_system_and_the_button_overrides_it(browser):
    page = "return getComputedStyle(document.body).backgroundColor"
    browser.open("red", color_scheme="dark")
    dark = browser.js(page)
    browser.js("document.getElementById('theme').click()")
    light = browser.js(page)
    browser.open("red", color_scheme="light")
    assert browser.js(page) == light != dark


def test_it_prints_with_the_matrix_and_without_the_controls(browser):
    browser.open("red")
    browser.media(kind="print")
    assert browser.js("return document.querySelector('.filter').checkVisibility()") is False
    assert browser.js("return document.querySelector('.matrix').checkVisibility()") is True
    pdf = base64.b64decode(browser.command("Page.printToPDF", paperWidth=8.27, paperHeight=11.7)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000


def test_the_ledger_is_searched(browser):
    browser.open("red", "#conformance")
    browser.keys("rcp", into="#find-form")
    assert len(browser.visible("table.ledger tbody tr")) == 1


def test_packed_parts_appear_when_they_are_opened(browser):
    browser.open("large", "#case--rcp")
    browser.wait("document.querySelector('#case--rcp table.variants')", "the case's inside is there")
    assert browser.js("return document.querySelector('#case--rcp .folded')") is None
    browser.wait("document.querySelector('#case--rcp .listings select')", "the listings are there")
    browser.js("document.querySelector('#conformance details').open = true")
    browser.wait("document.querySelectorAll('table.ledger tbody tr').length === 50", "the ledger is there")
    browser.keys("form.17", into="#find-form")
    assert len(browser.visible("table.ledger tbody tr")) == 1


EVERYWHERE = """
for (const d of document.querySelectorAll("details")) d.open = true;
for (const e of document.querySelectorAll("main a, main td, main th, main code, main summary")) {
  e.dispatchEvent(new Event("mouseover", { bubbles: true }));
  e.focus?.();
}
for (const a of document.querySelectorAll("table.matrix td a")) a.click();
document.querySelector("table.matrix tr[data-case] td a").click(); // the last one has no results
"""


@pytest.mark.parametrize("policy", [True, False], ids=["with the policy", "by escaping alone"])
def test_nothing_planted_in_a_case_runs(browser, policy):
    browser.open("hostile", policy=policy)
    browser.js(EVERYWHERE)
    browser.wait("document.querySelector('tr.opened table')", "a cell opens")
    browser.wait("document.querySelector('.listing .ours')", "the listings are there")
    browser.js(CHOOSE, ".controls select", -1)
    time.sleep(0.5)
    assert browser.js("return window.pwned === undefined")
    assert "window.pwned=1" in browser.js("return document.body.innerText")
    assert not [m for m in browser.log() if "Content Security Policy" in m]  # nothing was even attempted


def test_the_attacks_would_run_without_escaping(driver, tmp_path):
    path = tmp_path / "naive.html"
    path.write_text(f"<meta charset=utf-8><p>{hostile.ATTACKS[0]}</p>")
    Browser(driver, {"naive": path}).open("naive", policy=False)
    assert driver.execute_script("return window.pwned") == 1
