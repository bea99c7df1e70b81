"""The game in a window: the market's picture, with a strip of controls below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kineticsim_env.play.game import Game
from kineticsim_env.render import canvas as colours
from kineticsim_env.render.canvas import Canvas, pygame
from kineticsim_env.render.picture import HEIGHT, LADDER_MIDDLE, LADDER_RIGHT, WIDTH, Picture
from kineticsim_env.render.window import open_display

_STRIP = 74
_FPS = 30


def play_window(game: Game, poll: Callable[[], Iterable[Any]] | None = None) -> None:
    """Play in a window until the player closes it or presses q; the end of the episode stays on the screen.

    `poll` returns the events since the last call. Raises RuntimeError if this machine has no display.
    """
    screen = open_display((WIDTH, HEIGHT + _STRIP), "KineticSim: play", "play --terminal plays in a terminal")
    clock, picture, strip, result = pygame.time.Clock(), Picture(), Canvas(WIDTH, _STRIP), None
    try:
        while not game.controls.quit:
            for event in (poll or pygame.event.get)():
                handle(game, picture, event)
            game.advance(clock.tick(_FPS) / 1000)
            if game.over and result is None:
                result = game.result()
            picture.draw(game.recorder)
            if result is None:
                picture.outline(game.moment, game.controls.quotes(game.moment))
            else:
                draw_result(picture, result)
            draw_strip(strip, game)
            screen.blit(picture.surface, (0, 0))
            screen.blit(strip.surface, (0, HEIGHT))
            pygame.display.flip()
    finally:
        pygame.display.quit()


def handle(game: Game, picture: Picture, event: Any) -> None:
    """Do what an event of pygame says."""
    if event.type == pygame.QUIT:
        game.press("q")
    elif event.type == pygame.KEYDOWN:
        game.press(key_name(event))
    elif event.type == pygame.MOUSEWHEEL and event.y:
        game.press("up" if event.y > 0 else "down")
    elif event.type == pygame.MOUSEBUTTONDOWN and event.button == 1 and event.pos[0] < LADDER_RIGHT:
        price = picture.price_at(game.moment, event.pos[1])
        if price is not None:
            game.controls.point(price, event.pos[0] < LADDER_MIDDLE, game.moment)


def key_name(event: Any) -> str:
    """Return the game's name of a key event."""
    named = {getattr(pygame, f"K_{name.upper()}"): name for name in ("up", "down", "left", "right", "space")}
    named |= {pygame.K_RETURN: "enter", pygame.K_KP_ENTER: "enter", pygame.K_ESCAPE: "q"}
    return named.get(event.key) or getattr(event, "unicode", "") or pygame.key.name(event.key)


def draw_strip(strip: Canvas, game: Game) -> None:
    """Draw what the next decision is, and the keys."""
    strip.fill(colours.INK)
    strip.text("" if game.over else game.controls.describe(game.moment), 14, 8, 20, colours.WHITE)
    strip.text(game.status(), WIDTH - 14, 8, 20, colours.FLASH, align=1.0)
    keys = game.controls.keys
    half = (len(keys) + 1) // 2
    for row, part in enumerate((keys[:half], ("click on the ladder: place a quote", *keys[half:]))):
        strip.text("      ".join(part), 14, 33 + 19 * row, 16, colours.PALE_BUY)


def draw_result(picture: Picture, result: str) -> None:
    """Write the table of the end over the picture."""
    lines = [*result.split("\n"), "q: close"]
    left, top, width = 250, 200, 460
    picture.box(left, top, width, 34 * len(lines) + 24, colours.WHITE)
    picture.box(left, top, width, 34 * len(lines) + 24, colours.INK, 2)
    for row, line in enumerate(lines):
        name, money = (line[:22].rstrip(), line[22:].strip()) if 1 <= row < len(lines) - 1 else (line, "")
        picture.text(name, left + 20, top + 18 + 34 * row, 22)
        picture.text(money, left + width - 20, top + 18 + 34 * row, 22, align=1.0)
