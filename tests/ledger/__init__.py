"""The ledger: balances, holds, receipts, and what adds them up."""
