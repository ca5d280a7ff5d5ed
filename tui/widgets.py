"""Line-API widgets that draw lines: no markup, no actions in text, whatever the text is."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBarRender
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from netdoctor.tui.lines import Line, inert
from netdoctor.tui.looks import LOOKS


class PlainBars(ScrollBarRender):
    """Scroll bars of coloured spaces: the usual blocks have different widths in different terminals."""

    VERTICAL_BARS: ClassVar = [" "] * 8
    HORIZONTAL_BARS: ClassVar = [" "] * 8


def looks(widget: Widget) -> dict[str, Style]:
    return LOOKS[widget.app.current_theme.dark]


def strip_of(spans: Sequence[tuple[str, str]], known: dict[str, Style], base: Style, width: int) -> Strip:
    """The one place where text becomes cells."""
    nothing = Style.null()
    segments = []
    for text, styles in spans:
        look = base
        for style in styles.split("+"):
            look += known.get(style, nothing)
        if text:
            segments.append(Segment(inert(text), look))
    return Strip(segments).simplify().adjust_cell_length(width, base)


class Pane(ScrollView):
    """What has a frame, with a title above and a remark below."""

    _titles = ("", "")

    def title(self, above: str, below: str) -> None:
        if (above, below) != self._titles:  # Textual draws anew whatever it is given
            self._titles = (above, below)
            # Content, as a string would be read as markup.
            self.border_title = Content(inert(above))
            self.border_subtitle = Content(inert(below))


class Bar(Widget, can_focus=False):
    """A few lines that do not scroll. Zones are ours to click on: (line, from column, to column, action)."""

    class Clicked(Message):
        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: tuple[Line, ...] = ()
        self.zones: tuple[tuple[int, int, int, str], ...] = ()

    def show(self, lines: Sequence[Line], zones: Sequence[tuple[int, int, int, str]] = ()) -> None:
        if tuple(lines) != self.lines:
            grown = len(lines) != len(self.lines)
            self.lines = tuple(lines)
            self.refresh(layout=grown)
        self.zones = tuple(zones)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.lines)

    def render_line(self, y: int) -> Strip:
        if y >= len(self.lines):
            return Strip.blank(self.size.width, self.rich_style)
        known = looks(self)
        base = self.rich_style + known[self.lines[y].fill]
        return strip_of(self.lines[y].spans, known, base, self.size.width)

    def on_click(self, event: events.Click) -> None:
        for y, start, end, action in self.zones:
            if event.y == y and start <= event.x < end:
                self.post_message(self.Clicked(action))
                return


class Page(Pane, can_focus=True, inherit_bindings=False):
    """Lines that scroll, with a cursor on those that have a key. The first ones may stay where they are."""

    class Opened(Message):
        """Enter, or a second click, on the line under the cursor."""

    class Moved(Message):
        """The cursor is on another line, or other lines can be seen. x: the column of a click."""

        def __init__(self, x: int | None = None) -> None:
            super().__init__()
            self.x = x

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: list[Line] = []
        self.at = 0
        self._stops: list[int] = []
        self._heads = 0

    def on_mount(self) -> None:
        self.vertical_scrollbar.renderer = PlainBars  # type: ignore[misc]  # Textual looks it up on the bar

    @property
    def heads(self) -> int:
        """How many lines stay at the top: none where that would leave too little for the others."""
        return self._heads if self.size.height >= 2 * self._heads else 0

    def _index(self, y: int) -> int:
        """The line that is drawn at a height."""
        return y if y < self.heads else y + round(self.scroll_y)

    @property
    def key(self) -> Hashable:
        """What the cursor is on, None when nothing can be opened."""
        return self.lines[self.at].key if self._stops and self.at < len(self.lines) else None

    @property
    def below(self) -> int:
        """How many lines there are below those that can be seen."""
        return max(len(self.lines) - round(self.scroll_y) - self.size.height, 0)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def show(self, lines: Sequence[Line], key: Hashable = None, *, top: bool = False, heads: int = 0) -> None:
        """Draw other lines; the cursor stays on its key, or goes to `key`, or stays where it is.

        heads: how many lines do not scroll.
        """
        self._heads = heads
        target = key if key is not None or top else self.key
        self.lines = list(lines)
        self._stops = [i for i, one in enumerate(self.lines) if one.key is not None]
        match = next((i for i in self._stops if self.lines[i].key == target), None) if target else None
        if match is None:
            match = next((i for i in self._stops if not top and i >= self.at), None)
        if match is None:
            match = (self._stops[0] if top else self._stops[-1]) if self._stops else 0
        self.at = match
        self.virtual_size = Size(self.size.width, len(self.lines))
        if top:
            self.scroll_to(y=0, animate=False, immediate=True)
        self._into_view()
        self.refresh()

    def move(self, by: int) -> None:
        """Move the cursor over `by` stops, or scroll where there is nothing to stop at."""
        if not self._stops:
            self.scroll_relative(y=by, animate=False)
            return
        position = self._stops.index(self.at) if self.at in self._stops else 0
        target = position + by
        # Text above the first and below the last stop has to be reached, too.
        if target < 0:
            self.scroll_to(y=0, animate=False)
        elif target >= len(self._stops):
            self.scroll_end(animate=False)
        self._go(self._stops[min(max(target, 0), len(self._stops) - 1)])
        if 0 <= target < len(self._stops):
            self._into_view()

    def _go(self, index: int, x: int | None = None) -> None:
        self.at = index
        self.post_message(self.Moved(x))
        self.refresh()

    def page(self, by: int) -> None:
        """Move by a screen of lines."""
        height = max(self.size.height - 1, 1)
        if not self._stops:
            self.scroll_relative(y=by * height, animate=False)
            return
        goal = self.at + by * height
        near = [i for i in self._stops if (i >= goal if by > 0 else i <= goal)]
        self._go((near[0] if by > 0 else near[-1]) if near else self._stops[-1 if by > 0 else 0])
        if not near:
            self.scroll_to(y=len(self.lines) if by > 0 else 0, animate=False)
        self._into_view()

    def edge(self, last: bool) -> None:
        self._go((self._stops[-1] if last else self._stops[0]) if self._stops else 0)
        self.scroll_to(y=len(self.lines) if last else 0, animate=False)

    def _into_view(self) -> None:
        if not self._stops:
            return
        height = self.size.height
        top = round(self.scroll_y)
        # The lines that follow a stop belong to it, up to the next one.
        end = next((i for i in self._stops if i > self.at), len(self.lines))
        last = min(end, self.at + 4) - 1
        if self.at == self._stops[0] and self.at < height:
            self.scroll_to(y=0, animate=False, immediate=True)
        elif self.at < top + self.heads:
            self.scroll_to(y=self.at - self.heads, animate=False, immediate=True)
        elif last >= top + height:
            self.scroll_to(y=last - height + 1, animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        index = self._index(y)
        width = self.size.width
        base = self.rich_style
        if index >= len(self.lines):
            return Strip.blank(width, base)
        known = looks(self)
        current = index == self.at and bool(self._stops)
        if current:
            base += known["line"]
        mark = (">", "head") if current else (" ", "")
        base += known[self.lines[index].fill]
        one = strip_of((mark, *self.lines[index].spans), known, base, width)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(index)) is not None:
            start, end = span
            end = width if end == -1 else min(end + 1, width)
            style = self.screen.get_component_rich_style("screen--selection")
            one = Strip.join([one.crop(0, start), one.crop(start, end).apply_style(style), one.crop(end)])
        return one.apply_offsets(0, index)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(" " + inert(one.text) for one in self.lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.lines))
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        point = event.get_content_offset(self)
        index = self._index(point.y) if point is not None else len(self.lines)
        if point is None or index >= len(self.lines):
            return
        stop = max((i for i in self._stops if i <= index), default=None)
        if stop is None or index - stop > 3:
            return
        again = stop == self.at and event.chain > 1
        self._go(stop, point.x)
        if again:
            self.post_message(self.Opened())
