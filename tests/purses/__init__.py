"""Purses: filled, granted, drawn, frozen and lapsed, and what adds them up."""
