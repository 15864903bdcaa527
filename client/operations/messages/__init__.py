"""Operations on messages: selection, copy, export, import, following, history."""
