"""Amounts in a form for people, next to the units of the protocols."""

SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_MSAT_SCALE = 11  # a bitcoin has 10^11 millisatoshi


def readable(amount: int, asset_code: str, asset_scale: int) -> str:
    """`$0.00000353` for 3530 units of USD with scale 9, `3530 msat` for BTC with scale 11."""
    if asset_code == "BTC" and asset_scale == _MSAT_SCALE:
        return f"{amount} msat"
    number = decimal(amount, asset_scale)
    sign = SIGNS.get(asset_code)
    if sign is None:
        return f"{number} {asset_code}"
    return f"-{sign}{number[1:]}" if amount < 0 else f"{sign}{number}"


def decimal(amount: int, scale: int) -> str:
    """An amount in whole assets: exact, without trailing zeros."""
    digits = str(abs(amount)).rjust(scale + 1, "0")
    whole, part = (digits[:-scale], digits[-scale:].rstrip("0")) if scale else (digits, "")
    return f"{'-' if amount < 0 else ''}{whole}{'.' if part else ''}{part}"


def with_units(amount: int, asset_code: str, asset_scale: int) -> str:
    """Both forms: `3530 USD/1e9 ($0.00000353)`."""
    units = f"{amount} {asset_code}/1e{asset_scale}"
    return f"{units} ({readable(amount, asset_code, asset_scale)})"
